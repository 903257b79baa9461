"""Logs every problem once when it appears, and once when it is resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from lasthop.engine.outputs.findings.root_causes import mistakes
from lasthop.engine.outputs.status.crashed import query_name
from lasthop.engine.plan.finding import Finding, FindingChanges, Severity
from lasthop.engine.store.node import Crash, NodeId

ERROR_LENGTH: Final = 500
"""Characters of an internal error that are logged, because its text may quote user input."""


Locate = Callable[..., tuple[str, int] | None]
"""Returns file and line of an object, or of a field in it."""
MANY: Final = 1_000
"""Findings up to which root causes are determined, because that takes time proportional to their number."""


class ProblemLog:
    def __init__(self, log: Any, locate: Locate = lambda *_: None) -> None:
        self._log, self._locate = log, locate
        self._present: dict[Finding, None] = {}
        self._crashes: dict[NodeId, Crash] = {}

    def findings(self, changes: FindingChanges) -> None:
        """Logs new and resolved findings. A consequence of another problem is logged as information."""
        for finding in changes.gone:
            self._present.pop(finding, None)
        self._present |= dict.fromkeys(changes.new)
        causes = self._causes() if changes.new and len(self._present) <= MANY else {}
        for finding in changes.new:
            found = self._placed(finding)
            if cause := causes.get(found):
                self._log.info(str(finding), because=str(cause), **_where(found))
            else:
                log = self._log.error if finding.severity is Severity.ERROR else self._log.warning
                log(str(finding), **_where(found))
        for finding in changes.gone:
            self._log.info(f"resolved: {finding}", **_where(finding))

    def _causes(self) -> dict[Finding, Finding]:
        grouped = mistakes(map(self._placed, self._present), {})
        return {each: mistake.finding for mistake in grouped for each in mistake.follows}

    def _placed(self, finding: Finding) -> Finding:
        key = finding.object
        place = None if finding.file or key is None else self._locate(key, finding.field) or self._locate(key, "")
        return msgspec.structs.replace(finding, file=place[0], line=place[1]) if place else finding

    def crashes(self, crashes: Mapping[NodeId, Crash]) -> None:
        """Receives all present internal errors."""
        for id in crashes.keys() - self._crashes.keys():
            error, where = repr(crashes[id].error)[:ERROR_LENGTH], crashes[id].where
            self._log.error(
                "internal error; objects that depend on it are closed", query=query_name(id), error=error, at=where
            )
        for id in self._crashes.keys() - crashes.keys():
            self._log.info("internal error resolved", query=query_name(id))
        self._crashes = dict(crashes)


def _where(finding: Finding) -> dict[str, str | int]:
    object = {"object": str(finding.object)} if finding.object else {}
    return {"reason": finding.reason, **object, **({"file": finding.file, "line": finding.line} if finding.file else {})}
