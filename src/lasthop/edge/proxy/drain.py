"""Ends an Envoy: drains it, then terminates it."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from lasthop.edge.proxy.admin import Admin, AdminUnavailable
from lasthop.edge.proxy.handle import EnvoyHandle

_POLL_INTERVAL: Final = 0.1
_QUIET: Final = 0.5
"""Seconds without a request in flight after which the remaining connections count as idle keep-alive."""
_TERM_LIMIT: Final = 5.0


async def drain_and_terminate(handle: EnvoyHandle, admin: Admin, grace: float, at_once: asyncio.Event) -> None:
    """Stops accepting, waits until no request is in flight (for `grace` seconds, or until `at_once`), and terminates."""
    try:
        if grace > 0 and handle.alive:
            async with asyncio.timeout(grace):
                await _drain(handle, admin, at_once)
    except (AdminUnavailable, TimeoutError):
        pass
    finally:
        # Also when cancelled: an Envoy that no longer accepts must not be left behind.
        handle.signal(signal.SIGTERM)
    if not await handle.wait(_TERM_LIMIT):
        handle.signal(signal.SIGKILL)
        await handle.wait()
    handle.exit_code()


async def _drain(handle: EnvoyHandle, admin: Admin, at_once: asyncio.Event) -> None:
    await admin.fail_health_check()
    # At once, not gracefully: a graceful drain keeps accepting, so the last requests of a busy Gateway would be cut off. Here
    # they are refused, or accepted by the Envoy that replaces this one.
    await admin.drain_listeners()
    quiet = 0.0
    while handle.alive and not at_once.is_set():
        traffic = await admin.traffic()
        # An idle keep-alive connection is asked to close only with its next response, which may never come.
        quiet = 0.0 if traffic.busy else quiet + _POLL_INTERVAL
        if traffic.connections == 0 or quiet > _QUIET:
            return
        await handle.wait(_POLL_INTERVAL)
