"""Collects all findings, and tells which have appeared and which have gone; the cost does not grow with how many there are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from lasthop.engine.plan.finding import Finding, FindingChanges


class FindingCollection:
    """Holds each finding once: several hops may say the same of one Service."""

    def __init__(self) -> None:
        self._said: dict[Hashable, tuple[Finding, ...]] = {}
        self._voices: dict[Finding, int] = {}
        """How many say it."""
        self._before: dict[Finding, bool] = {}
        """Whether those that were said or withdrawn since the last `changes` were there then."""
        self._sorted: list[Finding] | None = None

    def say(self, who: Hashable, findings: tuple[Finding, ...]) -> None:
        """Takes what one of many has found now, in place of what it found before."""
        old = self._said.pop(who, ())
        if findings:
            self._said[who] = findings
        if old == findings:
            return
        for finding in findings:
            self._count(finding, 1)
        for finding in old:
            self._count(finding, -1)

    def changes(self) -> FindingChanges:
        """Returns what is other than at the last call, in the order in which people read it."""
        was, self._before = self._before, {}
        new = sorted((each for each, there in was.items() if not there and each in self._voices), key=str)
        gone = sorted((each for each, there in was.items() if there and each not in self._voices), key=str)
        if new or gone:
            self._sorted = None
        return FindingChanges(tuple(new), tuple(gone))

    def sorted(self) -> Sequence[Finding]:
        """Returns all that there were at the last `changes`. Kept until then: a page that is open asks every second."""
        if self._sorted is None:
            self._sorted = sorted(self._voices)
        return self._sorted

    def _count(self, finding: Finding, by: int) -> None:
        voices = self._voices.get(finding, 0)
        self._before.setdefault(finding, voices > 0)
        if voices + by:
            self._voices[finding] = voices + by
        else:
            del self._voices[finding]
