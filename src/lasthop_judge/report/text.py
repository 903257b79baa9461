"""The report for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from lasthop_judge.model import CaseVerdict, Outcome
from lasthop_judge.report.document import RunReport, requirement

WIDTH: Final = 118
FEW: Final = 4


def as_text(report: RunReport) -> str:
    return "\n".join(_lines(report))


def _lines(report: RunReport) -> Iterator[str]:
    for verdict in report.failed:
        yield from _fault(verdict)
        yield ""
    yield from table(report)
    yield ""
    yield from _left_out(report)
    yield summary(report)


def table(report: RunReport) -> Iterator[str]:
    heads = [str(outcome) for outcome in Outcome]
    yield f"{'AREA':<12}" + "".join(f"{head.upper():>13}" for head in heads)
    for area in report.areas:
        yield f"{area:<12}" + "".join(f"{report.count(outcome, area):>13}" for outcome in Outcome)


def _left_out(report: RunReport) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        if verdict.outcome in (Outcome.NOT_CLAIMED, Outcome.NOT_RUN):
            reasons.setdefault(f"{verdict.outcome}: {verdict.why}", []).append(verdict.case.id)
    for why, ids in reasons.items():
        yield f"{why}: {', '.join(ids) if len(ids) <= FEW else f'{ids[0]} and {len(ids) - 1} more'}"
    if reasons:
        yield ""


def summary(report: RunReport) -> str:
    worst = ", ".join(f"{number} {severity}" for severity, number in sorted(report.severities.items()))
    faults = f" ({worst})" if worst else ""
    counts = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in Outcome)
    return f"{len(report.verdicts)} cases: {counts}{faults}; {report.gateway.seconds:.0f} s"


def _fault(verdict: CaseVerdict) -> Iterator[str]:
    case = verdict.case
    yield f"FAIL {case.id} ({verdict.severity}): {case.title}"
    for fault in verdict.faults:
        yield from _wrapped("observed", f"{fault.step}: {fault.seen}" if fault.step else fault.seen)
    broken = requirement(verdict)
    yield from _wrapped("required", f"“{broken.sentence}” ({broken.source})")
    for number, command in enumerate(verdict.repro_commands):
        yield f"  {'' if number else 'repeat':<9} {command}"


def _wrapped(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(textwrap.wrap(text, WIDTH - 12) or [""]):
        yield f"  {'' if number else name:<9} {line}"
