"""Whether a gateway serves all of its input, and what it does not serve."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.not_applied import NotApplied


class Readiness(msgspec.Struct, frozen=True):
    unready: tuple[str, ...] = ()
    """Why the process is not ready, a line each; empty: it is."""
    unapplied: tuple[str, ...] = ()
    """What was written and is not in force, a line each; the process may be ready all the same, with what it had before."""
    settled: bool = True
    """Everything that has been read is computed; under many edits that may take a moment."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What was written first: it is the cause where nothing is served."""
        return (*self.unapplied, *self.unready)


def unapplied(refused: Collection[NotApplied], findings: Iterable[Finding]) -> Iterator[str]:
    """Yields the input that is not in force: a line for each file that is refused, and for each other error in a file."""
    files = {each.file for each in refused}
    yield from map(str, refused)
    for finding in findings:
        if finding.file and finding.file not in files and finding.severity is Severity.ERROR:
            yield str(finding)
