"""Represents a problem of a document before its file and line are known."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from lasthop.edge.admission.limits import MAX_PROBLEMS
from lasthop.engine.plan import reasons
from lasthop.engine.plan.reasons import Reason

Path = tuple[str | int, ...]
"""The path of a value in a document: ("spec", "rules", 0, "name")."""

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


class FieldProblem(msgspec.Struct, frozen=True):
    message: str
    path: Path = ()
    remedy: str = ""
    reason: Reason = reasons.INVALID
    blocks_rules: bool = False
    """CEL rules cannot be evaluated on a value with this problem."""


class Problems:
    """Collects the problems of one document up to a limit; callers may stop when it is `full`."""

    def __init__(self) -> None:
        self._problems: list[FieldProblem] = []
        self.full = False

    def append(self, problem: FieldProblem) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        else:
            self.full = True

    def extend(self, problems: Iterable[FieldProblem]) -> None:
        for problem in problems:
            self.append(problem)
            if self.full:
                return

    def listed(self) -> list[FieldProblem]:
        if not self.full:
            return self._problems
        return [
            *self._problems,
            FieldProblem(f"more than {MAX_PROBLEMS} problems; the rest is not listed", reason=reasons.TOO_LARGE),
        ]


def field(path: Path) -> str:
    """Formats a path as the API server does: `spec.rules[0].name`, `metadata.annotations[example.com/key]`."""
    text = ""
    for step in path:
        if isinstance(step, str) and _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


def shown(value: object, limit: int = 80) -> str:
    """Formats a value for a message: as JSON, truncated."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[:limit]}..."
