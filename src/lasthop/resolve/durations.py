"""Durations as Gateway API writes them (GEP-2257): `1h30m`, `500ms`. The schema has checked the form."""

from __future__ import annotations

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(text: str) -> float:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", text))
