"""Times as Kubernetes writes them (RFC 3339, UTC)."""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime
from typing import Annotated

import msgspec

UnixTime = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
"""A time up to the year 9999. A stored memory with a time outside this range is damaged."""


def rfc3339(seconds: float) -> str:
    """Returns a Unix time as a Time: `2026-11-16T20:00:00Z`."""
    return _of_second(math.floor(seconds))


@functools.lru_cache(maxsize=64)
def _of_second(second: int) -> str:
    """Formats a whole second. Cached, because thousands of statuses are written in one second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    """Returns the current time as a MicroTime: `2026-11-16T20:00:00.000000Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
