"""Formats figures for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

DAY: Final = 86400.0
SOON: Final = 30
"""Days before its expiry from which a certificate should be renewed."""

_LONGEST: Final = 1e6


def rate(per_second: float) -> str:
    """Formats a rate such as `12/s`; empty without one."""
    if per_second <= 0:
        return ""
    if per_second >= 9_950:
        return f"{per_second / 1000:.0f}k/s"
    if per_second >= 1000:
        return f"{per_second / 1000:.1f}k/s"
    if per_second >= 9.95:
        return f"{per_second:.0f}/s"
    return f"{per_second:.1f}/s" if per_second >= 0.1 else "< 0.1/s"


def share(part: float) -> str:
    """Formats a share such as `3.2 %`; a small one is never shown as zero, nor a large one as all."""
    if part <= 0:
        return "0 %"
    if part >= 1:
        return "100 %"
    percent = part * 100
    return "< 0.1 %" if percent < 0.1 else "> 99.9 %" if percent > 99.9 else f"{percent:.3g} %"


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def days_left(not_after: float, now: float) -> int:
    """Returns the remaining whole days, within a limit."""
    return math.floor(max(-_LONGEST, min(_LONGEST, (not_after - now) / DAY)))


def days(not_after: float, now: float) -> str:
    left = days_left(not_after, now)
    if left < 0:
        return "expired within a day" if left == -1 else f"expired {-left} days ago"
    return "expires today" if left == 0 else "1 day left" if left == 1 else f"{left:,} days left"


def due(not_after: float, now: float) -> str:
    """Returns the urgency: `over`, `soon` or empty."""
    left = days_left(not_after, now)
    return "over" if left < 0 else "soon" if left <= SOON else ""


def date(unix: float) -> str:
    try:
        return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "no date"
