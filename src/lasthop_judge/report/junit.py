"""The report as JUnit XML, for CI systems."""

from __future__ import annotations

from xml.etree import ElementTree

from lasthop_judge.model import CaseVerdict, Outcome
from lasthop_judge.report.document import RunReport, requirement


def as_junit(report: RunReport) -> str:
    suites = ElementTree.Element("testsuites", name="lasthop judge", time=f"{report.gateway.seconds:.1f}")
    for area in report.areas:
        verdicts = [verdict for verdict in report.verdicts if verdict.case.area is area]
        left_out = sum(verdict.outcome in (Outcome.NOT_CLAIMED, Outcome.NOT_RUN) for verdict in verdicts)
        failures = sum(verdict.outcome is Outcome.FAIL for verdict in verdicts)
        counts = {"tests": len(verdicts), "failures": failures, "skipped": left_out, "errors": 0}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": area, **{key: str(n) for key, n in counts.items()}})
        for verdict in verdicts:
            _case(suite, verdict)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def _case(suite: ElementTree.Element, verdict: CaseVerdict) -> None:
    case = verdict.case
    name = f"{case.name}: {case.title}"
    element = ElementTree.SubElement(suite, "testcase", classname=case.area, name=name, time=f"{verdict.seconds:.2f}")
    if verdict.outcome is Outcome.FAIL:
        seen = "; ".join(f"{fault.step}: {fault.seen}" if fault.step else fault.seen for fault in verdict.faults)
        failure = ElementTree.SubElement(element, "failure", type=str(verdict.severity), message=_clean(seen))
        broken = requirement(verdict)
        lines = (f"required: {broken.sentence} ({broken.source})", *verdict.repro_commands)
        failure.text = _clean("\n".join(lines))
    elif verdict.outcome is not Outcome.PASS:
        ElementTree.SubElement(element, "skipped", message=_clean(f"{verdict.outcome}: {verdict.why}"))


def _clean(text: str) -> str:
    """Replaces control characters, which XML forbids."""
    return "".join(character if character >= " " or character in "\n\t" else "�" for character in text)
