from __future__ import annotations

from conformance.results import Output, Result, summary, verdict

OUTPUT = """\
\x16=== RUN   TestConformance
\x16=== RUN   TestConformance/Alpha
    a.go:5: hello
\x16=== RUN   TestConformance/Alpha/sub
    a.go:5: bad thing
\x16--- FAIL: TestConformance/Alpha/sub (0.10s)
\x16=== NAME  TestConformance/Alpha
\x16--- FAIL: TestConformance/Alpha (0.25s)
\x16=== NAME  TestConformance
    suite.go:1: said by nobody
\x16=== RUN   TestConformance/Beta
no newline\x16--- PASS: TestConformance/Beta (1.00s)
\x16=== RUN   TestConformance/Gamma
\x16--- SKIP: TestConformance/Gamma (0.00s)
\x16--- FAIL: TestConformance (2.00s)
"""


def test_each_test_is_reported_when_it_ends_and_its_parts_are_not() -> None:
    output = Output()
    ended = [result for line in OUTPUT.splitlines() if (result := output.feed(line))]
    assert [(result.test, result.outcome, result.seconds) for result in ended] == [
        ("Alpha", "FAIL", 0.25),
        ("Beta", "PASS", 1.0),
        ("Gamma", "SKIP", 0.0),
    ]
    assert output.failed() == ["Alpha"]


def test_a_failed_test_comes_with_what_it_said() -> None:
    output = Output()
    for line in OUTPUT.splitlines():
        output.feed(line)
    assert output.results["Alpha"].said == (
        "    a.go:5: hello",
        "    a.go:5: bad thing",
        "--- FAIL: TestConformance/Alpha/sub (0.10s)",
    )
    assert output.results["Beta"] == Result("Beta", "PASS", 1.0)


def test_the_summary_has_a_line_per_profile() -> None:
    core = {"result": "success", "statistics": {"Passed": 40, "Failed": 0, "Skipped": 0}}
    extended = {"statistics": {"Passed": 5, "Failed": 1, "Skipped": 0}}
    report = {
        "profiles": [{"name": "GATEWAY-HTTP", "core": core, "extended": extended}, {"name": "GATEWAY-TLS", "core": core}]
    }
    assert summary(report) == [
        "GATEWAY-HTTP   core 40 passed, 0 failed, 0 skipped   extended 5 passed, 1 failed, 0 skipped",
        "GATEWAY-TLS    core 40 passed, 0 failed, 0 skipped",
    ]
    assert summary({}) == []


def mk_output(**outcomes: str) -> Output:
    return Output({test: Result(test, outcome, 1.0) for test, outcome in outcomes.items()})


def test_what_failed_and_then_passed_alone_is_not_fatal() -> None:
    output = mk_output(Alpha="PASS", Beta="FAIL", Gamma="SKIP")
    assert verdict(output, ["Beta"], 1) == (["1 passed, 1 failed, 1 skipped"], 0)


def test_what_failed_twice_is_fatal() -> None:
    lines, code = verdict(mk_output(Alpha="FAIL", Beta="FAIL"), ["Beta"], 1)
    assert code == 1 and lines[1:] == ["FAILED Alpha"]


def test_a_suite_that_did_not_run_to_its_end_has_not_passed() -> None:
    assert verdict(mk_output(Alpha="PASS"), [], 1)[1] == 1
    assert verdict(mk_output(Alpha="FAIL"), ["Alpha"], 2)[1] == 1, "it broke off"
    assert verdict(mk_output(), [], 0)[1] == 1, "nothing was run"
    assert verdict(mk_output(Alpha="PASS"), [], 0)[1] == 0
