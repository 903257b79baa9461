"""End the Envoys of Gateways that were deleted while no Lasthop ran."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from lasthop.proxy.admin import Admin
from lasthop.proxy.drain import end
from lasthop.proxy.folder import Folder, FolderUnusable, folder_name
from lasthop.proxy.process import GRACE_SECONDS
from lasthop.proxy.running import find_running


async def end_orphans(run_dir: Path, wanted: Collection[str], grace: float = GRACE_SECONDS) -> list[int]:
    """End what runs for other Gateways than `wanted` and remove its files. The answer is the pids that were ended.

    A Gateway that another Lasthop looks after is left alone.
    """
    keep = {folder_name(gateway) for gateway in wanted}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_end(Folder(path), grace))
            for path in (run_dir.absolute().iterdir() if run_dir.is_dir() else ())
            # Nothing is removed that does not look like a folder of ours.
            if path.name not in keep and re.fullmatch("[0-9a-f]{12}", path.name) and (path / "lock").is_file()
        ]
    return [pid for task in tasks for pid in task.result()]


async def _end(folder: Folder, grace: float) -> list[int]:
    ended = []
    try:
        with folder.held():
            found = find_running(folder.path)
            if found:
                folder.set_aside_admin_socket(found[-1].pid)
            for running in found:
                await end(running, Admin(folder.admin_socket_set_aside(running.pid)), grace, asyncio.Event())
                running.close()
                ended.append(running.pid)
            shutil.rmtree(folder.path, ignore_errors=True)
    except FolderUnusable:
        pass
    return ended
