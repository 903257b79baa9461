"""Sentences that are shown to be true of a cluster: a function for each, with the sentence as its docstring."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

from conformance.api import ApiError
from conformance.children import ChildError, say
from conformance.cluster import Cluster

Proof = Callable[[Cluster], Awaitable[None]]


async def failed(cluster: Cluster, proofs: Iterable[Proof]) -> int:
    """Tries one after the other and tells how it went; the number of those that failed."""
    bad = 0
    for proof in proofs:
        begin, name = time.monotonic(), (proof.__doc__ or "").rstrip(".")
        try:
            await proof(cluster)
            say(f"proved  {name} ({time.monotonic() - begin:.1f} s)")
        except (AssertionError, ApiError, ChildError, aiohttp.ClientError, OSError) as error:
            bad += 1
            say(f"FAILED  {name}: {error!r}")
    return bad
