"""Problems are logged once, with the place of each; consequences are logged as information, with their cause."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan.finding import Finding, FindingChanges
from lasthop.run.problem_log import ProblemLog
from tests.snapshot import settled
from tests.world import keyed, mk_class, mk_gateway, mk_policy, mk_route, mk_service, mk_slice

POLICY, ROUTE = Key("BackendTLSPolicy", "shop", "api"), Key("HTTPRoute", "shop", "r")
PLACES = {POLICY: ("policy.yaml", 7), ROUTE: ("route.yaml", 3)}


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


def broken() -> Engine:
    """A policy whose CA is missing, and a route that leads there."""
    return settled(
        keyed(
            mk_class(),
            mk_gateway("shop/web"),
            mk_route("shop/r", "shop/web", [{"name": "api", "port": 443}]),
            mk_service("shop/api"),
            mk_slice("shop/api-1", "api", ["10.0.0.1"]),
            mk_policy("shop/api", "api", "api.example", ["ca"]),
        )
    )[0]


@pytest.fixture
def findings() -> tuple[Finding, ...]:
    found_problems = tuple(broken().findings())
    assert {finding.object for finding in found_problems} == {POLICY, ROUTE}
    return found_problems


def test_each_has_its_place_and_a_consequence_names_its_cause(findings: tuple[Finding, ...]) -> None:
    log = Log()
    ProblemLog(log, lambda key, field: PLACES.get(key)).findings(FindingChanges(new=findings))
    by_object = {fields["object"]: (level, fields) for level, _, fields in log.lines}
    assert len(by_object) == len(log.lines) == len(findings)
    for key, place in PLACES.items():
        level, fields = by_object[str(key)]
        assert (fields["file"], fields["line"]) == place
        assert level == ("error" if key == POLICY else "info")
        assert ("because" in fields) == (key == ROUTE)
    assert str(POLICY) in by_object[str(ROUTE)][1]["because"]


def test_a_consequence_that_comes_later_names_the_cause_that_is_known(findings: tuple[Finding, ...]) -> None:
    log = Log()
    problems = ProblemLog(log)
    for key in (POLICY, ROUTE):
        problems.findings(FindingChanges(new=tuple(finding for finding in findings if finding.object == key)))
    assert [(level, "because" in fields) for level, _, fields in log.lines] == [("error", False), ("info", True)]


def test_without_its_cause_it_is_an_error_itself(findings: tuple[Finding, ...]) -> None:
    log = Log()
    problems = ProblemLog(log)
    cause, consequence = (tuple(finding for finding in findings if finding.object == key) for key in (POLICY, ROUTE))
    problems.findings(FindingChanges(new=cause))
    problems.findings(FindingChanges(new=consequence, gone=cause))
    assert [level for level, _, _ in log.lines] == ["error", "error", "info"]
    assert log.lines[-1][1].startswith("resolved: ")


def test_a_cause_is_found_among_very_many_others(findings: tuple[Finding, ...]) -> None:
    log = Log()
    problems = ProblemLog(log)
    problems.findings(
        FindingChanges(new=tuple(Finding(Key("Service", "a", str(n)), findings[0].reason, "wrong") for n in range(2_000)))
    )
    problems.findings(FindingChanges(new=findings))
    assert [level for level, _, fields in log.lines if fields["object"] == str(ROUTE)] == ["info"]
