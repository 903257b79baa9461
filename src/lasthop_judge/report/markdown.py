"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop_judge.model import CaseVerdict, Outcome
from lasthop_judge.objects import as_yaml
from lasthop_judge.report.document import RunReport, requirement
from lasthop_judge.report.text import summary


def as_markdown(report: RunReport, *, objects: bool = True, level: int = 1) -> str:
    return "\n".join(_lines(report, objects, "#" * level))


def _lines(report: RunReport, objects: bool, heading: str) -> Iterator[str]:
    gateway = report.gateway
    yield f"{heading} {' '.join(filter(None, (gateway.controller or gateway.gateway_class, gateway.version)))}"
    yield ""
    yield f"{summary(report)}. {'. '.join(filter(None, (gateway.method, gateway.features, gateway.date)))}."
    yield ""
    yield from table(report)
    if report.failed:
        yield ""
        yield f"{heading}# Faults"
        for verdict in report.failed:
            yield from _fault(verdict, objects, heading)
    yield from _left_out(report, heading)


def table(report: RunReport) -> Iterator[str]:
    yield "| Area | " + " | ".join(str(outcome) for outcome in Outcome) + " |"
    yield "|---" * (len(Outcome) + 1) + "|"
    for area in report.areas:
        yield f"| {area} | " + " | ".join(str(report.count(outcome, area) or "") for outcome in Outcome) + " |"


def _fault(verdict: CaseVerdict, objects: bool, heading: str) -> Iterator[str]:
    case = verdict.case
    yield ""
    yield f"{heading}## `{case.id}` ({verdict.severity})"
    yield ""
    yield f"{case.title[0].upper()}{case.title[1:]}."
    yield ""
    for fault in verdict.faults:
        yield f"- Observed: {f'{fault.step}: ' if fault.step else ''}{_escaped(fault.seen)}"
    broken = requirement(verdict)
    yield f"- Required: “{broken.sentence}” ({broken.source})"
    for note in verdict.notes:
        yield f"- Note: {_escaped(note)}"
    if verdict.repro_commands:
        yield ""
        yield "```sh"
        yield from verdict.repro_commands
        yield "```"
    if objects and verdict.objects:
        yield ""
        yield "<details><summary>Objects</summary>"
        yield ""
        yield "```yaml"
        yield as_yaml(verdict.objects).rstrip()
        yield "```"
        yield ""
        yield "</details>"


def _left_out(report: RunReport, heading: str) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        if verdict.outcome in (Outcome.NOT_CLAIMED, Outcome.NOT_RUN):
            reasons.setdefault(f"{verdict.outcome}: {verdict.why}", []).append(verdict.case.id)
    if reasons:
        yield ""
        yield f"{heading}# Not claimed and not run"
        yield ""
        for why, ids in reasons.items():
            yield f"- {_escaped(why)}: {', '.join(f'`{id}`' for id in ids)}"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")
