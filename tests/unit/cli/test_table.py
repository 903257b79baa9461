"""The status table: rows, wrapping, colours only on a terminal."""

from __future__ import annotations

from typing import Any

import click
import pytest

from lasthop.cli.render import status_table as table
from lasthop.cli.render.status_table import Columns, Row, age, arranged, failing_services, with_observation
from lasthop.cli.render.status_table import row as row_of
from lasthop.engine.outputs.status.summary import summary


def _document(kind: str, name: str, **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "shop"}, "status": status}


def _condition(type: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": "Because", "message": message}


def row(document: dict[str, Any], **ready: Any) -> Row:
    return row_of({**document, "ready": {**summary(document)._asdict(), **ready}})


def test_ready_without_bad_news() -> None:
    document = _document("Gateway", "web", conditions=[_condition("Accepted", "True")])
    assert row(document)[:3] == ("gateway/shop/web", "True", "")


def test_the_first_bad_news_is_why() -> None:
    conditions = [_condition("Accepted", "True"), _condition("Programmed", "False", "no proxy")]
    table_row = row(_document("Gateway", "web", conditions=conditions))
    assert table_row[:3] == ("gateway/shop/web", "False", "Because: no proxy")


def test_a_gateway_with_a_waiver_and_a_weakened_backend_shows_both() -> None:
    notes = [_condition(type, "True", type) for type in ("InsecureBackendVerification", "BackendsWeakened")]
    table_row = row(_document("Gateway", "web", conditions=[_condition("Accepted", "True"), *notes]))
    assert table_row[1:3] == ("True", "InsecureBackendVerification; BackendsWeakened")


def test_why_contains_problems_without_a_condition() -> None:
    unreached = {
        **_document("BackendTLSPolicy", "api"),
        "problem": {"reason": "TargetNotFound", "message": "Service shop/apii does not exist"},
    }
    assert row(unreached)[1:3] == ("False", "TargetNotFound: Service shop/apii does not exist")
    route = _document("HTTPRoute", "api", conditions=[_condition("Accepted", "True")])
    assert row({**route, "problem": {"reason": "NoLongerVerified", "message": "it is plaintext now"}})[1:3] == (
        "False",
        "NoLongerVerified: it is plaintext now",
    )


def test_a_policy_that_differs_from_gateway_to_gateway_shows_both() -> None:
    weakened = [_condition("Accepted", "True"), _condition("VerificationDegraded", "True", "nothing is checked")]
    refused = [_condition("Accepted", "False", "no waivers here")]
    ancestors = [
        {"ancestorRef": {"name": name, "namespace": "shop"}, "conditions": conditions}
        for name, conditions in (("lenient", weakened), ("strict", refused))
    ]
    assert row(_document("BackendTLSPolicy", "api", ancestors=ancestors))[1:3] == (
        "False",
        "shop/strict: Because: no waivers here; shop/lenient: nothing is checked",
    )


def test_a_kind_without_status_refers_to_explain() -> None:
    table_row = row({"kind": "Service", "metadata": {"name": "api", "namespace": "shop"}})
    assert table_row[:3] == ("service/shop/api", "-", "has no status; see: lasthop explain service/shop/api")


def test_a_line_is_as_long_as_the_terminal_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "width", lambda: 80)
    columns = Columns.of([Row("gateway/shop/web", "False", "")])
    line = click.unstyle(columns.line(Row("gateway/shop/web", "False", "one two three four five " * 10)))
    assert line.startswith("gateway/shop/web  False    one two") and line.endswith("…") and len(line) == 80
    wide = Columns.of([Row("gateway/shop/web", "False", "")], wide=True)
    assert len(click.unstyle(wide.line(Row("gateway/shop/web", "False", "word " * 50)))) > 250


def test_on_a_narrow_terminal_what_went_wrong_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "width", lambda: 80)
    columns = Columns.of([Row("backendtlspolicy/shop/api", "False", "")])
    why = "Service shop/api:443 (10.0.0.1:8443): certificate has expired since yesterday morning"
    conditions = [_condition("Accepted", "True"), _condition("BackendConnected", "False", why)]
    ancestors = [{"ancestorRef": {"name": "web", "namespace": "shop"}, "conditions": conditions}]
    line = click.unstyle(columns.line(row(_document("BackendTLSPolicy", "api", ancestors=ancestors))))
    assert line.endswith("False    certificate has expired since yesterday mor…") and len(line) == 80


def test_objects_that_are_not_ready_are_first_and_a_cause_appears_once() -> None:
    cause, policy = "shop/web: WaiverNotPermitted: GatewayProfile shop/prod allows none", "backendtlspolicy/shop/p"
    route = Row("httproute/shop/a", "False", "shop/web: InvalidBackendTLS: ...", because=(policy,))
    others = [Row("gateway/shop/web", "True", ""), route, Row("httproute/shop/b", "Unknown", "later")]
    assert [table_row[:3] for table_row in arranged([*others, Row(policy, "False", cause)])] == [
        (policy, "False", cause),
        ("httproute/shop/a", "False", f"because of {policy}"),
        ("httproute/shop/b", "Unknown", "later"),
        ("gateway/shop/web", "True", ""),
    ]
    alone = arranged([route])
    assert alone[0].why == f"because of {policy}: shop/web: InvalidBackendTLS: ...", "no other row says why"


def test_a_service_at_fault_has_a_line_of_its_own() -> None:
    routes = [Row(f"httproute/shop/{name}", "False", "no ready endpoint", because=("service/shop/api",)) for name in "ab"]
    assert failing_services([*routes, Row("gateway/shop/web", "True", "")]) == {"service/shop/api": "no ready endpoint"}
    assert {table_row.why for table_row in arranged(routes)} == {"because of service/shop/api"}


def test_nothing_tried_yet_is_no_bad_news_and_shown_only_with_more_columns() -> None:
    conditions = [
        _condition("Accepted", "True"),
        _condition("BackendConnected", "Unknown", "no connection was tried yet"),
    ]
    ancestors = [{"ancestorRef": {"name": "web", "namespace": "shop"}, "conditions": conditions}]
    document = _document("BackendTLSPolicy", "api", ancestors=ancestors)
    assert row(document)[1:3] == ("True", "")
    assert with_observation(row(document), document)[1:3] == ("True", "no connection was tried yet")


def test_more_columns_are_those_of_kubectl() -> None:
    listeners = [{"name": "a", "port": 443, "hostname": "a.example"}, {"name": "b", "port": 80}]
    document = _document("Gateway", "web", addresses=[{"value": "10.0.0.1"}])
    document |= {"spec": {"gatewayClassName": "lasthop", "listeners": listeners}}
    assert row(document).wide[:4] == ("lasthop", "10.0.0.1", "443,80", "a.example")


@pytest.mark.parametrize(
    "seconds, shown", [(5, "5s"), (119, "119s"), (150, "2m"), (7_300, "2h"), (200_000, "2d"), (1e8, "3y"), (-3, "0s")]
)
def test_age_is_written_as_kubectl_writes_it(seconds: float, shown: str) -> None:
    assert age("2026-01-01T00:00:00Z", 1_767_225_600 + seconds) == shown


def test_a_pipe_gets_one_line_for_each_object() -> None:
    columns = Columns.of([Row("a", "False", "")])
    assert "\n" not in columns.line(Row("a", "False", "word " * 500))
