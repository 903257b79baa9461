"""End an Envoy: let it finish what it does, then insist."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from lasthop.proxy.admin import Admin, AdminUnavailable
from lasthop.proxy.running import Running

_LOOK_EVERY: Final = 0.1
_QUIET: Final = 0.5
"""Seconds without a request in flight after which the connections that are left count as idle keep-alive."""
_TERM_LIMIT: Final = 5.0


async def end(running: Running, admin: Admin, grace: float, at_once: asyncio.Event) -> None:
    """Stop accepting, wait until no request is in flight (for `grace` seconds, or until `at_once`), terminate."""
    try:
        if grace > 0 and running.alive:
            async with asyncio.timeout(grace):
                await _drain(running, admin, at_once)
    except (AdminUnavailable, TimeoutError):
        pass
    finally:
        # Also when cancelled: an Envoy that no longer accepts must not be left behind.
        running.signal(signal.SIGTERM)
    if not await running.gone(_TERM_LIMIT):
        running.signal(signal.SIGKILL)
        await running.gone()
    running.exit_code()


async def _drain(running: Running, admin: Admin, at_once: asyncio.Event) -> None:
    await admin.fail_health_check()
    # At once, not gracefully: a graceful drain goes on accepting, so the last requests of a busy Gateway would be cut
    # off. Here they are refused, or taken by the Envoy that replaces this one.
    await admin.drain_listeners()
    quiet = 0.0
    while running.alive and not at_once.is_set():
        traffic = await admin.traffic()
        # An idle keep-alive connection is told to close only with its next answer, which may never come.
        quiet = 0.0 if traffic.busy else quiet + _LOOK_EVERY
        if traffic.connections == 0 or quiet > _QUIET:
            return
        await running.gone(_LOOK_EVERY)
