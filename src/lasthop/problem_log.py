"""Logs every problem once when it appears, and once when it is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from lasthop.outputs.status.crashed import query_name
from lasthop.plan.finding import Finding, Severity
from lasthop.store.node import Crash, NodeId

ERROR_LENGTH: Final = 500
"""Characters of an internal error that are logged: its text may quote whatever somebody wrote."""


class ProblemLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._findings: frozenset[Finding] = frozenset()
        self._crashes: dict[NodeId, Crash] = {}

    def findings(self, findings: Collection[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Takes all findings there are now; returns those that are new and those that are gone."""
        now = frozenset(findings)
        new, gone = sorted(now - self._findings, key=str), sorted(self._findings - now, key=str)
        for finding in new:
            log = self._log.error if finding.severity is Severity.ERROR else self._log.warning
            log(str(finding), **_where(finding))
        for finding in gone:
            self._log.info(f"resolved: {finding}", **_where(finding))
        self._findings = now
        return new, gone

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
