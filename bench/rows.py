"""The rows that every part of the bench writes and the report reads: a JSON line for each figure, judged by `bench.goals`.

bench/out/<name>.json   first line: how it was measured; then a line for each row
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.goals import GOALS, Goal

OUT = Path(__file__).parent / "out"


@dataclasses.dataclass(frozen=True)
class Row:
    part: str
    """As in bench/goals.py."""
    what: str
    n: int
    """Number of policies, or of the objects that the part counts; 0 without a count."""
    ours: float
    unit: str
    other: float | None = None
    peer: str = ""
    """Whom `other` is of."""
    ratio: float | None = None
    """ours / other: below 1 is less than the peer."""
    goal: str = ""
    met: bool | None = None
    """None without a goal at this size."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The method of the rows in one file."""

    part: str
    command: str
    date: str
    machine: str
    commit: str
    others: float
    """Cores that processes outside the bench used."""


def judged(part: str, what: str, n: int, ours: float, unit: str, other: float | None = None, peer: str = "") -> Row:
    """Returns the row with its ratio and its goal."""
    ratio = ours / other if other else None
    goals = [goal for goal in GOALS.get((part, what), ()) if goal.of != "growth" and goal.holds_at(n, peer)]
    seen = [(goal, ours if goal.of == "ours" else ratio) for goal in goals]
    known = [(goal, value) for goal, value in seen if value is not None]
    words = ", ".join(goal.words(unit) for goal, _ in known)
    met = all(goal.met(value) for goal, value in known) if known else None
    return Row(part, what, n, ours, unit, other, peer, ratio, words, met)


def growth(rows: Iterable[Row]) -> list[Row]:
    """Returns a row for each figure with a goal for how it grows: ours at the largest size : ours at the smallest."""
    sizes: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        sizes.setdefault((row.part, row.what), {})[row.n] = row
    ratios = []
    for (part, what), by_size in sizes.items():
        first, last = by_size[min(by_size)], by_size[max(by_size)]
        for goal in _growth_goals(part, what):
            if first.n and last.n > first.n and first.ours:
                grown = last.ours / first.ours
                name = f"{what}, N={last.n:,} : N={first.n:,}"
                ratios.append(Row(part, name, last.n, grown, "x", goal=goal.words("x"), met=goal.met(grown)))
    return ratios


def _growth_goals(part: str, what: str) -> list[Goal]:
    return [goal for goal in GOALS.get((part, what), ()) if goal.of == "growth"]


def missed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.met is False]


def verdict(rows: Sequence[Row]) -> int:
    """Returns the exit status of a part that has measured these rows."""
    return 1 if missed([*rows, *growth(rows)]) else 0


def lines(run: Run, rows: Iterable[Row]) -> str:
    parts: list[dict[str, Any]] = [{"run": dataclasses.asdict(run)}, *map(dataclasses.asdict, rows)]
    return "".join(json.dumps(part) + "\n" for part in parts)


def write(name: str, run: Run, rows: Iterable[Row], folder: Path = OUT) -> Path:
    """Replaces the earlier rows of the same part."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(lines(run, rows))
    return path


def read(folder: Path = OUT) -> tuple[list[Run], list[Row]]:
    """Reads the rows of all parts."""
    runs: list[Run] = []
    rows: list[Row] = []
    for path in sorted(folder.glob("*.json")):
        for line in map(json.loads, path.read_text().splitlines()):
            if "run" in line:
                runs.append(Run(**line["run"]))
            else:
                rows.append(Row(**line))
    return runs, rows
