"""What there is to count, in a form that knows nothing of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Measure(NamedTuple):
    name: str
    help: str
    labels: tuple[str, ...]
    values: Iterable[tuple[tuple[str, ...], float]]
    """Each with the texts of its labels."""
    counter: bool = False
    """It only grows; its name has no `_total`, which is added."""


class Durations:
    """How long something took, each time: a histogram in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds
