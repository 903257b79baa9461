"""Durations as Gateway API writes them (GEP-2257): `1h30m`, `500ms`."""

from __future__ import annotations

import re

from lasthop.resolve.http_syntax import DURATION

_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def seconds(text: str) -> float:
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", text)) / 1_000


def is_duration(text: str) -> bool:
    """Whether it has the form; what has not would mean no time at all, which is no limit."""
    return DURATION.fullmatch(text) is not None
