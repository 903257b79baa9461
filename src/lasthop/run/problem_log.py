"""Logs every problem once when it appears, and once when it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lasthop.engine.outputs.status.crashed import query_name
from lasthop.engine.plan.finding import Finding, FindingChanges, Severity
from lasthop.engine.store.node import Crash, NodeId

ERROR_LENGTH: Final = 500
"""Characters of an internal error that are logged: its text may quote whatever somebody wrote."""


class ProblemLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._crashes: dict[NodeId, Crash] = {}

    def findings(self, changes: FindingChanges) -> None:
        for finding in changes.new:
            log = self._log.error if finding.severity is Severity.ERROR else self._log.warning
            log(str(finding), **_where(finding))
        for finding in changes.gone:
            self._log.info(f"resolved: {finding}", **_where(finding))

    def crashes(self, crashes: Mapping[NodeId, Crash]) -> None:
        """Takes all internal errors there are now."""
        for id in crashes.keys() - self._crashes.keys():
            error, where = repr(crashes[id].error)[:ERROR_LENGTH], crashes[id].where
            self._log.error("internal error; what depends on it is closed", query=query_name(id), error=error, at=where)
        for id in self._crashes.keys() - crashes.keys():
            self._log.info("internal error resolved", query=query_name(id))
        self._crashes = dict(crashes)


def _where(finding: Finding) -> dict[str, str]:
    return {"reason": finding.reason, **({"object": str(finding.object)} if finding.object else {})}
