"""Ends the Envoys of Gateways that were deleted while no Lasthop ran."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirUnusable, folder_name
from lasthop.edge.proxy.drain import drain_and_terminate
from lasthop.edge.proxy.handle import find_envoys
from lasthop.edge.proxy.supervisor import GRACE_SECONDS


async def end_orphans(run_dir: Path, wanted: Collection[str], grace: float = GRACE_SECONDS) -> list[int]:
    """Ends the Envoys of Gateways that are not `wanted`, removes their files, and returns their pids.

    They have `grace` seconds to finish their requests. Leaves Gateways alone that another Lasthop runs.
    """
    keep = {folder_name(gateway) for gateway in wanted}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_end(ProxyDirectory(path), grace))
            for path in (run_dir.absolute().iterdir() if run_dir.is_dir() else ())
            # Removes nothing that does not look like a directory of ours.
            if path.name not in keep and re.fullmatch("[0-9a-f]{12}", path.name) and (path / "lock").is_file()
        ]
    return [pid for task in tasks for pid in task.result()]


async def _end(directory: ProxyDirectory, grace: float) -> list[int]:
    pids = []
    try:
        with directory.locked():
            handles = find_envoys(directory.path)
            if handles:
                directory.set_aside_admin_socket(handles[-1].pid)
            for handle in handles:
                admin = Admin(directory.admin_socket_set_aside(handle.pid))
                await drain_and_terminate(handle, admin, grace, asyncio.Event())
                handle.close()
                pids.append(handle.pid)
            shutil.rmtree(directory.path, ignore_errors=True)
    except RunDirUnusable:
        pass
    return pids
