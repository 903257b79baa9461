"""Reports the figures of the data plane bench: the cost of one proxy relative to another, and whether it meets the goal."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from bench.data.rows import Row
from bench.processes import busy
from bench.routes import interval


class Figure(NamedTuple):
    row: Row
    other: str
    ours_us: float
    other_us: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def goal(self) -> float | None:
        return self.row.goals[self.other]

    def line(self) -> str:
        costs = f"{self.ours_us:7.1f} µs against {self.other_us:7.1f}"
        wanted = "" if self.goal is None else f", goal {self.goal:.2f}: {'met' if met(self) else 'MISSED'}"
        return f"{self.other:30} {costs}: {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f}){wanted}"


def figure(row: Row, other: str, ours: list[float], others: list[float]) -> Figure:
    """The ratio is the median of those of the rounds, which noise reaches less than the ratio of medians."""
    ratios = [one / two for one, two in zip(ours, others, strict=True)]
    ours_us, other_us = (1e6 * statistics.median(values) for values in (ours, others))
    low, high = interval(ratios)
    return Figure(row, other, ours_us, other_us, statistics.median(ratios), low, high, len(ratios))


def met(figure: Figure) -> bool:
    """A goal is met by the median, and not by the edge of its interval."""
    return figure.goal is None or figure.ratio <= figure.goal


def result(figure: Figure) -> dict[str, Any]:
    return {
        "part": "data",
        "what": figure.row.name,
        "peer": figure.other,
        "n": figure.row.routes,
        "ours": round(figure.ours_us, 2),
        "other": round(figure.other_us, 2),
        "ratio": round(figure.ratio, 4),
        "goal": figure.goal,
        "met": met(figure),
        "unit": "µs of CPU for a request",
        "low": round(figure.low, 4),
        "high": round(figure.high, 4),
        "rounds": figure.rounds,
    }


class Clock:
    """Prints the CPU that other processes used meanwhile. All that the bench has started must have ended by then."""

    def __init__(self) -> None:
        self._begun = time.monotonic(), busy() - _own()

    def others(self) -> float:
        """Returns cores."""
        begun, before = self._begun
        return max(0.0, (busy() - _own() - before) / (time.monotonic() - begun))


def _own() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def run(part: str, others: float) -> dict[str, Any]:
    """Returns how it was measured."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "part": part,
        "command": f"python -m bench.{part} {' '.join(sys.argv[1:])}".strip(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        "commit": asked.stdout.strip(),
        "others": round(others, 2),
    }
