"""Collects all findings, and reports the new and fixed ones at a cost independent of their number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from lasthop.engine.plan.finding import Finding, FindingChanges


class FindingCollection:
    """Collects findings without duplicates, because several hops may report the same finding of a Service."""

    def __init__(self) -> None:
        self._by_source: dict[Hashable, tuple[Finding, ...]] = {}
        self._counts: dict[Finding, int] = {}
        """Number of sources of each finding."""
        self._before: dict[Finding, bool] = {}
        """Findings that were added or removed since the last `changes`, and whether they existed then."""
        self._sorted: list[Finding] | None = None

    def replace(self, source: Hashable, findings: tuple[Finding, ...]) -> None:
        """Replaces the findings of one source."""
        old = self._by_source.pop(source, ())
        if findings:
            self._by_source[source] = findings
        if old == findings:
            return
        for finding in findings:
            self._count(finding, 1)
        for finding in old:
            self._count(finding, -1)

    def changes(self) -> FindingChanges:
        """Returns the new and fixed findings since the last call, sorted by text."""
        was, self._before = self._before, {}
        new = sorted((finding for finding, existed in was.items() if not existed and finding in self._counts), key=str)
        gone = sorted((finding for finding, existed in was.items() if existed and finding not in self._counts), key=str)
        if new or gone:
            self._sorted = None
        return FindingChanges(tuple(new), tuple(gone))

    def sorted(self) -> Sequence[Finding]:
        """Returns all findings. The list is cached until the next `changes`, because an open page requests it every second."""
        if self._sorted is None:
            self._sorted = sorted(self._counts)
        return self._sorted

    def _count(self, finding: Finding, by: int) -> None:
        count = self._counts.get(finding, 0)
        self._before.setdefault(finding, count > 0)
        if count + by:
            self._counts[finding] = count + by
        else:
            del self._counts[finding]
