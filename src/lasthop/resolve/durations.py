"""Durations as Gateway API writes them (GEP-2257): `1h30m`, `500ms`. The schema has checked the form."""

from __future__ import annotations

import re

_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def seconds(text: str) -> float:
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", text)) / 1_000
