"""The report of a run as one value, and as JSON (docs/judge.schema.json)."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from lasthop_judge.model import Area, CaseVerdict, Expected, FaultSeverity, Outcome, Requirement
from lasthop_judge.requirements import CONNECT, GRPC_ROUTE, MIRROR, NEVER_PLAINTEXT, TLS_ROUTE

VERSION: Final = 1
EXIT_CODES: Final = {FaultSeverity.PLAINTEXT: 6, FaultSeverity.OPEN: 5, FaultSeverity.CLOSED: 4, FaultSeverity.STATUS: 3}
"""Exit codes by the worst fault; 0 without a fault."""
UNJUDGED: Final = 1
"""Exit code without a fault if no case passed, or if cases did not run that should have run."""


_AGAINST_PLAINTEXT: Final = (CONNECT, NEVER_PLAINTEXT, GRPC_ROUTE, MIRROR, TLS_ROUTE)


@dataclasses.dataclass(frozen=True)
class JudgedGateway:
    """The implementation that was judged, and how."""

    gateway_class: str
    controller: str = ""
    version: str = ""
    adapter: str = "none"
    features: str = ""
    """The source of the claimed features."""
    method: str = ""
    date: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class RunReport:
    gateway: JudgedGateway
    verdicts: tuple[CaseVerdict, ...]

    def count(self, outcome: Outcome, area: Area | None = None) -> int:
        return sum(verdict.outcome is outcome and area in (None, verdict.case.area) for verdict in self.verdicts)

    @property
    def areas(self) -> list[Area]:
        return [area for area in Area if any(verdict.case.area is area for verdict in self.verdicts)]

    @property
    def failed(self) -> list[CaseVerdict]:
        """Returns the failed cases, worst first."""
        order = list(FaultSeverity)
        failed = [verdict for verdict in self.verdicts if verdict.outcome is Outcome.FAIL]
        return sorted(failed, key=lambda verdict: order.index(verdict.severity) if verdict.severity else 0)

    @property
    def severities(self) -> Counter[FaultSeverity]:
        return Counter(verdict.severity for verdict in self.failed if verdict.severity)

    @property
    def exit_code(self) -> int:
        judged = self.count(Outcome.PASS) and not any(verdict.unserved for verdict in self.verdicts)
        return max((EXIT_CODES[severity] for severity in self.severities), default=0 if judged else UNJUDGED)


def report_of(gateway: JudgedGateway, verdicts: Sequence[CaseVerdict]) -> RunReport:
    order = list(Area)
    return RunReport(gateway, tuple(sorted(verdicts, key=lambda verdict: (order.index(verdict.case.area), verdict.case.id))))


def as_json(report: RunReport) -> str:
    return json.dumps(as_document(report), indent=2, ensure_ascii=False)


def as_document(report: RunReport) -> dict[str, Any]:
    severities = report.severities
    return {
        "version": VERSION,
        "gateway": dataclasses.asdict(report.gateway),
        "summary": {
            **{str(outcome): report.count(outcome) for outcome in Outcome},
            "faults": {str(severity): severities[severity] for severity in FaultSeverity},
        },
        "cases": [_case(verdict) for verdict in report.verdicts],
    }


def requirement(verdict: CaseVerdict) -> Requirement:
    """Returns the requirement of the case. Plaintext breaks the requirement of TLS, not one of names or dates."""
    case = verdict.case
    if verdict.severity is FaultSeverity.PLAINTEXT and case.requirement not in _AGAINST_PLAINTEXT:
        return NEVER_PLAINTEXT if case.expect is Expected.REFUSED_5XX else CONNECT
    return case.requirement


def _case(verdict: CaseVerdict) -> dict[str, Any]:
    case = verdict.case
    document: dict[str, Any] = {
        "id": case.id,
        "area": str(case.area),
        "title": case.title,
        "requirement": dataclasses.asdict(requirement(verdict)),
        "expected": [str(case.expect), *(str(step.expect) for step in case.steps)],
        "via": str(case.via),
        "features": list(case.needs),
        "outcome": str(verdict.outcome),
        "severity": str(verdict.severity) if verdict.severity else None,
        "seconds": verdict.seconds,
    }
    if verdict.faults:
        document["faults"] = [
            {"severity": str(fault.severity), "seen": fault.seen, "step": fault.step} for fault in verdict.faults
        ]
        document |= {"repeat": list(verdict.repro_commands), "objects": list(verdict.objects)}
    if verdict.why:
        document["why"] = verdict.why
    if verdict.notes:
        document["notes"] = list(verdict.notes)
    return document
