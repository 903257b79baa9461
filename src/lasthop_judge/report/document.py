"""The report of a run as one value, and as JSON (docs/judge.schema.json)."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from lasthop_judge.model import Area, CaseVerdict, FaultSeverity, Outcome

VERSION: Final = 1
EXIT_CODES: Final = {FaultSeverity.PLAINTEXT: 6, FaultSeverity.OPEN: 5, FaultSeverity.CLOSED: 4, FaultSeverity.STATUS: 3}
"""By the worst fault; 0 without one."""
UNJUDGED: Final = 1
"""No fault, but nothing was judged, or some cases were not although they should have been."""


@dataclasses.dataclass(frozen=True)
class JudgedGateway:
    """The implementation that was judged, and how."""

    gateway_class: str
    controller: str = ""
    version: str = ""
    adapter: str = "none"
    features: str = ""
    """Where the claimed features come from."""
    method: str = ""
    date: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class RunReport:
    gateway: JudgedGateway
    verdicts: tuple[CaseVerdict, ...]

    def count(self, outcome: Outcome, area: Area | None = None) -> int:
        return sum(each.outcome is outcome and area in (None, each.case.area) for each in self.verdicts)

    @property
    def areas(self) -> list[Area]:
        return [area for area in Area if any(each.case.area is area for each in self.verdicts)]

    @property
    def failed(self) -> list[CaseVerdict]:
        """The worst first."""
        order = list(FaultSeverity)
        found = [each for each in self.verdicts if each.outcome is Outcome.FAIL]
        return sorted(found, key=lambda each: order.index(each.severity) if each.severity else 0)

    @property
    def severities(self) -> Counter[FaultSeverity]:
        return Counter(each.severity for each in self.failed if each.severity)

    @property
    def exit_code(self) -> int:
        judged = self.count(Outcome.PASS) and not any(each.unserved for each in self.verdicts)
        return max((EXIT_CODES[each] for each in self.severities), default=0 if judged else UNJUDGED)


def report_of(gateway: JudgedGateway, verdicts: Sequence[CaseVerdict]) -> RunReport:
    order = list(Area)
    return RunReport(gateway, tuple(sorted(verdicts, key=lambda each: (order.index(each.case.area), each.case.id))))


def as_json(report: RunReport) -> str:
    return json.dumps(as_document(report), indent=2, ensure_ascii=False)


def as_document(report: RunReport) -> dict[str, Any]:
    severities = report.severities
    return {
        "version": VERSION,
        "gateway": dataclasses.asdict(report.gateway),
        "summary": {
            **{str(outcome): report.count(outcome) for outcome in Outcome},
            "faults": {str(each): severities[each] for each in FaultSeverity},
        },
        "cases": [_case(each) for each in report.verdicts],
    }


def _case(verdict: CaseVerdict) -> dict[str, Any]:
    case = verdict.case
    found: dict[str, Any] = {
        "id": case.id,
        "area": str(case.area),
        "title": case.title,
        "requirement": dataclasses.asdict(case.requirement),
        "expected": [str(case.expect), *(str(step.expect) for step in case.steps)],
        "via": str(case.via),
        "features": list(case.needs),
        "outcome": str(verdict.outcome),
        "severity": str(verdict.severity) if verdict.severity else None,
        "seconds": verdict.seconds,
    }
    if verdict.faults:
        found["faults"] = [{"severity": str(each.severity), "seen": each.seen, "step": each.step} for each in verdict.faults]
        found |= {"repeat": list(verdict.repeat), "objects": list(verdict.objects)}
    if verdict.why:
        found["why"] = verdict.why
    if verdict.notes:
        found["notes"] = list(verdict.notes)
    return found
