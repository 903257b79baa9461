"""Runs checks of a cluster: a function for each, whose docstring is the sentence that must hold."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

from conformance.api import ApiError
from conformance.children import ChildError, say
from conformance.cluster import Cluster

Check = Callable[[Cluster], Awaitable[None]]


async def failed(cluster: Cluster, checks: Iterable[Check]) -> int:
    """Runs one after the other, says how it went, and returns how many failed."""
    bad = 0
    for check in checks:
        begin, name = time.monotonic(), (check.__doc__ or "").rstrip(".")
        try:
            await check(cluster)
            say(f"ok      {name} ({time.monotonic() - begin:.1f} s)")
        except (AssertionError, ApiError, ChildError, aiohttp.ClientError, OSError) as error:
            bad += 1
            say(f"FAILED  {name}: {error!r}")
    return bad
