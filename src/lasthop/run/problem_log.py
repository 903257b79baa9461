"""Logs every problem once when it appears, and once when it is resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from lasthop.engine.outputs.findings.root_causes import CauseIndex
from lasthop.engine.outputs.status.crashed import query_name
from lasthop.engine.plan.finding import Finding, FindingChanges, Severity
from lasthop.engine.store.node import Crash, NodeId

ERROR_LENGTH: Final = 500
"""Characters of an internal error that are logged, because its text may quote user input."""


Locate = Callable[..., tuple[str, int] | None]
"""Returns file and line of an object, or of a field in it."""


class ProblemLog:
    def __init__(self, log: Any, locate: Locate = lambda *_: None) -> None:
        self._log, self._locate = log, locate
        self._placed: dict[Finding, Finding] = {}
        """The present findings, with file and line as far as they are known."""
        self._causes = CauseIndex()
        self._crashes: dict[NodeId, Crash] = {}

    def findings(self, changes: FindingChanges) -> None:
        """Logs new and resolved findings. A consequence of another problem is logged as information."""
        for finding in changes.gone:
            self._causes.put(self._placed.pop(finding, finding), present=False)
        for finding in changes.new:
            self._placed[finding] = placed = self._with_place(finding)
            self._causes.put(placed)
        for finding in changes.new:
            placed = self._placed[finding]
            if cause := self._causes.root(placed):
                self._log.info(str(finding), because=str(cause), **_where(placed))
            else:
                log = self._log.error if finding.severity is Severity.ERROR else self._log.warning
                log(str(finding), **_where(placed))
        for finding in changes.gone:
            self._log.info(f"resolved: {finding}", **_where(finding))

    def _with_place(self, finding: Finding) -> Finding:
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
