"""Counts tests that failed and then passed when run alone, over the runs on this machine, with the log of each.

A busy machine may cause one such failure in ten runs of a suite with timeouts. More are a defect in Lasthop or in the node.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

TOLERATED: Final = 1
WITHIN: Final = 10
"""At most so many of the last so many runs may have had a flaky test."""


class Run(msgspec.Struct, frozen=True):
    """A run of the whole suite."""

    name: str
    flaky: tuple[str, ...] = ()


class History:
    """The runs of the whole suite, oldest first, as lines of JSON in `folder/runs.jsonl`; their logs beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "runs.jsonl"

    def runs(self) -> list[Run]:
        lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        return [msgspec.json.decode(line, type=Run) for line in lines]

    def add(self, name: str, flaky: Sequence[str], log: Path) -> Path | None:
        """Notes a run; returns where its log is kept, if one of its tests was flaky."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(Run(name, tuple(flaky))) + b"\n")
        return Path(shutil.copy(log, self._folder / f"{name}.log")) if flaky else None


def told(runs: Sequence[Run], log: Path | None) -> list[str]:
    """Summarizes the last runs, especially the newest."""
    recent = runs[-WITHIN:]
    lines = []
    for test in runs[-1].flaky:
        times = sum(test in run.flaky for run in recent)
        lines.append(f"FLAKY  {test}: failed, then passed alone; in {times} of the last {len(recent)} runs")
    if log:
        lines.append(f"No report is filed from a run with flaky tests. Its log is kept in {log}")
    if runs[-1].flaky and _flaky(recent) > TOLERATED:
        lines.append(f"{_flaky(recent)} of the last {len(recent)} runs had flaky tests: find out why")
    return lines


def _flaky(runs: Sequence[Run]) -> int:
    return sum(bool(run.flaky) for run in runs)
