"""Reports the figures of the data plane bench: the CPU of one proxy for a request, relative to another."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from bench.data.rows import Row
from bench.rows import Row as Shown


class Figure(NamedTuple):
    row: Row
    other: str
    ours_us: float
    other_us: float
    ratio: float
    low: float
    high: float

    def line(self) -> str:
        costs = f"{self.ours_us:7.1f} µs against {self.other_us:7.1f}"
        return f"{self.other:30} {costs}: {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"

    def shown(self) -> Shown:
        """Has no goal: the goals of the data plane are for instructions."""
        return Shown("data", self.row.name, self.row.routes, self.ours_us, "µs of CPU", self.other_us, self.other, self.ratio)


def figure(row: Row, other: str, ours: list[float], others: list[float]) -> Figure:
    """The ratio is the median of the rounds' ratios, which is less sensitive to noise than the ratio of medians."""
    ratios = [one / two for one, two in zip(ours, others, strict=True)]
    ours_us, other_us = (1e6 * statistics.median(values) for values in (ours, others))
    return Figure(row, other, ours_us, other_us, statistics.median(ratios), *interval(ratios))


def interval(values: list[float]) -> tuple[float, float]:
    """Returns the 95 % confidence interval of the median, by order statistics, for any distribution."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    return ordered[max(0, int(middle - half))], ordered[min(len(values) - 1, int(middle + half))]
