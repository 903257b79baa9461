"""The renderings of a report."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema_rs
import pytest
from click.testing import CliRunner

from lasthop.cli.main import main
from lasthop_judge import requirements as r
from lasthop_judge.cases import ALL
from lasthop_judge.command.cli import FORMATS, _rendered
from lasthop_judge.model import CaseVerdict, Fault, FaultSeverity, Outcome
from lasthop_judge.report.document import JudgedGateway, RunReport, as_document, report_of, requirement

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "judge.schema.json").read_text())
HOSTILE = "a | b <script>alert(1)</script> \x00\x1b[31m `x` & ]]>"


def verdict(number: int) -> CaseVerdict:
    case = ALL[number]
    match number % 4:
        case 0:
            return CaseVerdict(case, Outcome.PASS, notes=("took 2 s",), seconds=1.5)
        case 1:
            faults = (Fault(list(FaultSeverity)[number // 4 % 4], HOSTILE, "a change"),)
            return CaseVerdict(
                case, Outcome.FAIL, faults, repro_commands=("curl -v http://x/",), objects=({"kind": "Service"},)
            )
        case 2:
            return CaseVerdict(case, Outcome.NOT_CLAIMED, why=HOSTILE)
    return CaseVerdict(case, Outcome.NOT_RUN, why="no adapter")


REPORT = report_of(
    JudgedGateway("lasthop", "lasthop.dev/x", date="2026-01-01"), [verdict(number) for number in range(len(ALL))]
)


def passing() -> RunReport:
    return report_of(JudgedGateway("lasthop"), [CaseVerdict(case, Outcome.PASS) for case in ALL])


def test_the_json_matches_the_schema() -> None:
    assert [error.message for error in jsonschema_rs.validator_for(SCHEMA).iter_errors(as_document(REPORT))] == []


def test_every_failing_case_is_in_every_rendering_with_its_sentence_and_how_to_repeat_it() -> None:
    for name in FORMATS:
        text = _rendered(REPORT, name)
        for failed in REPORT.failed[:5]:
            assert failed.case.name in text and "curl -v" in text, name


def test_no_text_of_a_backend_breaks_rendering() -> None:
    ElementTree.fromstring(_rendered(REPORT, "junit"))
    assert "<script>" not in _rendered(REPORT, "html") and "<script>" not in _rendered(REPORT, "markdown")


def test_junit_counts_what_the_report_counts() -> None:
    suites = ElementTree.fromstring(_rendered(REPORT, "junit"))
    assert len(suites.findall(".//failure")) == REPORT.count(Outcome.FAIL)
    assert len(suites.findall(".//skipped")) == REPORT.count(Outcome.NOT_CLAIMED) + REPORT.count(Outcome.NOT_RUN)
    assert len(suites.findall(".//testcase")) == len(ALL)


@pytest.mark.parametrize(("severity", "code"), [("plaintext", 6), ("open", 5), ("closed", 4), ("status", 3)])
def test_the_exit_code_is_that_of_the_worst_fault(severity: str, code: int) -> None:
    order = list(FaultSeverity)
    faults = [Fault(fault_severity, "seen") for fault_severity in order[order.index(FaultSeverity(severity)) :]]
    failed = [CaseVerdict(case, Outcome.FAIL, (fault,)) for case, fault in zip(ALL, faults, strict=False)]
    assert report_of(JudgedGateway(""), failed).exit_code == code
    assert passing().exit_code == 0


def test_the_text_reports_why_cases_were_not_run() -> None:
    assert "not run: no adapter: " in _rendered(REPORT, "text")


def test_certificates_of_a_failing_case_are_literal_blocks() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    failed = CaseVerdict(ALL[0], Outcome.FAIL, (Fault(FaultSeverity.OPEN, "seen"),), objects=({"data": {"ca.crt": pem}},))
    for name in ("markdown", "html"):
        assert "ca.crt: |\n    -----BEGIN" in _rendered(report_of(JudgedGateway(""), [failed]), name)


def test_plaintext_breaks_the_requirement_of_tls_and_not_that_of_dates() -> None:
    cases = {case.id: case for case in ALL}

    def broken(id: str, severity: FaultSeverity) -> str:
        return requirement(CaseVerdict(cases[id], Outcome.FAIL, (Fault(severity, "seen"),))).source

    assert broken("protocols/grpc-expired", FaultSeverity.PLAINTEXT) == r.CONNECT.source
    assert broken("protocols/grpc-expired", FaultSeverity.OPEN) == r.DATES.source
    assert broken("protocols/grpc", FaultSeverity.PLAINTEXT) == r.GRPC_ROUTE.source
    assert broken("invalid/missing", FaultSeverity.PLAINTEXT) == r.NEVER_PLAINTEXT.source


def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    result = CliRunner().invoke(main, ["judge", "--address", "127.0.0.1:1", "--write", "/proc/x", "--cases", "names/exact"])
    assert result.exit_code == 1 and "cannot write /proc/x" in result.output


def test_a_gateway_that_serves_nothing_is_no_success() -> None:
    unserved = [CaseVerdict(case, Outcome.NOT_RUN, why="not served", unserved=True) for case in ALL[:3]]
    assert report_of(JudgedGateway(""), unserved).exit_code == 1


@pytest.mark.parametrize("outcome", [Outcome.NOT_CLAIMED, Outcome.NOT_RUN])
def test_a_run_that_judged_nothing_is_no_success(outcome: Outcome) -> None:
    assert report_of(JudgedGateway(""), [CaseVerdict(case, outcome, why="why") for case in ALL[:3]]).exit_code == 1


def test_the_list_names_every_case_and_where_its_sentence_stands() -> None:
    shown = CliRunner().invoke(main, ["judge", "--list"]).output
    assert all(case.id in shown and case.requirement.source in shown for case in ALL)
    assert "can find: plaintext, open, status" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "("], "not a regular expression"),
        (["--cases", "nothing-like-that"], "no case matches"),
        (["--address", "127.0.0.1:1"], "go together"),
        ([], "give --gateway-class"),
        (["--gateway-class", "x", "--report", "x.pdf"], "suffix"),
        (["--gateway-class", "x", "--report", "not-there/x.json"], "no folder not-there"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["judge", *arguments])
    assert result.exit_code == 2 and message in result.output
