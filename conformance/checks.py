"""Runs checks of a cluster: one function each, whose docstring is the sentence that must hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp

from conformance.api import ApiError, Object
from conformance.children import ChildError, say
from conformance.cluster import Cluster

Check = Callable[[Cluster], Awaitable[None]]


async def failed(cluster: Cluster, checks: Iterable[Check]) -> int:
    """Runs the checks in order, prints their results, and returns the number of failures."""
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


async def eventually(done: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Waits until it is so; fails if that takes longer."""
    deadline = time.monotonic() + seconds
    while not await done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        await asyncio.sleep(0.2)


def mk_object(version: str, kind: str, namespace: str, name: str, **content: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
