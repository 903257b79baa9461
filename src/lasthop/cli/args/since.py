"""A point in time as people write it: how long ago, or a date."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
AGO: Final = re.compile(r"(\d{1,6})([smhdw])")


class Since(click.ParamType[float]):
    """Becomes a Unix time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if ago := AGO.fullmatch(value):
            return time.time() - timedelta(seconds=int(ago[1]) * UNITS[ago[2]]).total_seconds()
        try:
            found = datetime.fromisoformat(value.upper())
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            forms = "how long ago (30m, 24h, 7d) or a date (2026-11-16, 2026-11-16T08:00:00Z)"
            self.fail(f"{value} is not a time; give {forms}", param, ctx)
