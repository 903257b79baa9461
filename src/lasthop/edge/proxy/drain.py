"""Drains and terminates an Envoy, or the Envoys of Gateways that were deleted while no Lasthop was running."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Final

from lasthop.edge.proxy.admin import Admin, AdminUnavailable
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirUnusable, folder_name
from lasthop.edge.proxy.handle import EnvoyHandle, find_envoys

GRACE_SECONDS: Final = 10.0
_POLL_INTERVAL: Final = 0.1
_QUIET: Final = 0.5
"""Seconds without a request in flight after which the remaining connections count as idle keep-alive."""
_TERM_LIMIT: Final = 5.0


async def drain_and_terminate(handle: EnvoyHandle, admin: Admin, grace: float, at_once: asyncio.Event) -> None:
    """Stops accepting connections, waits until no request is in flight (for `grace` seconds, or until `at_once`), and
    terminates."""
    try:
        if grace > 0 and handle.alive:
            async with asyncio.timeout(grace):
                await _drain(handle, admin, at_once)
    except (AdminUnavailable, TimeoutError):
        pass
    finally:
        # Even on cancellation, because an Envoy that no longer accepts connections must not be left behind.
        handle.signal(signal.SIGTERM)
    if not await handle.wait(_TERM_LIMIT):
        handle.signal(signal.SIGKILL)
        await handle.wait()
    handle.exit_code()


async def _drain(handle: EnvoyHandle, admin: Admin, at_once: asyncio.Event) -> None:
    await admin.fail_health_check()
    # Stops accepting at once. A graceful drain keeps accepting, so the last requests of a busy Gateway would be cut off. Now
    # they are refused, or the Envoy that replaces this one accepts them.
    await admin.drain_listeners()
    quiet = 0.0
    while handle.alive and not at_once.is_set():
        traffic = await admin.traffic()
        # An idle keep-alive connection closes only with its next response, which may never come.
        quiet = 0.0 if traffic.busy else quiet + _POLL_INTERVAL
        if traffic.connections == 0 or quiet > _QUIET:
            return
        await handle.wait(_POLL_INTERVAL)


async def end_orphans(run_dir: Path, gateways: Collection[str], grace: float = GRACE_SECONDS) -> list[int]:
    """Stops the Envoys of Gateways other than `gateways`, removes their files, and returns their pids.

    They have `grace` seconds to finish their requests. Envoys of another running Lasthop keep running.
    """
    keep = {folder_name(gateway) for gateway in gateways}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_end(ProxyDirectory(path), grace))
            for path in (run_dir.absolute().iterdir() if run_dir.is_dir() else ())
            # Skips directories that do not look like ours.
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
