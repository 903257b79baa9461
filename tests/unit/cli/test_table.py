"""The status table: rows, wrapping, colours only on a terminal."""

from __future__ import annotations

from typing import Any

import click
import pytest

from lasthop.cli.render import table
from lasthop.cli.render.table import Columns, Row, row


def _document(kind: str, name: str, **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "shop"}, "status": status}


def _condition(type: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": "Because", "message": message}


def test_ready_without_bad_news() -> None:
    document = _document("Gateway", "web", conditions=[_condition("Accepted", "True")])
    assert row(document) == Row("gateway/shop/web", "True", "")


def test_the_first_bad_news_is_why() -> None:
    conditions = [_condition("Accepted", "True"), _condition("Programmed", "False", "no proxy")]
    assert row(_document("Gateway", "web", conditions=conditions)) == Row("gateway/shop/web", "False", "Because: no proxy")


def test_what_no_condition_can_say_is_why() -> None:
    unreached = {**_document("BackendTLSPolicy", "api"), "problem": "TargetNotFound: Service shop/apii does not exist"}
    assert row(unreached)[1:] == ("False", "TargetNotFound: Service shop/apii does not exist")
    route = _document("HTTPRoute", "api", conditions=[_condition("Accepted", "True")])
    assert row({**route, "problem": "NoLongerVerified: it is plaintext now"})[1:] == (
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
    assert row(_document("BackendTLSPolicy", "api", ancestors=ancestors))[1:] == (
        "False",
        "shop/strict: Because: no waivers here; shop/lenient: nothing is checked",
    )


def test_a_kind_without_status_refers_to_explain() -> None:
    found = row({"kind": "Service", "metadata": {"name": "api", "namespace": "shop"}})
    assert found == Row("service/shop/api", "-", "has no status; see: lasthop explain service/shop/api")


def test_why_is_wrapped_under_itself_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "width", lambda: 60)
    columns = Columns.of([Row("gateway/shop/web", "False", "")])
    lines = click.unstyle(
        columns.line(Row("gateway/shop/web", "False", "one two three four five six seven eight nine"))
    ).splitlines()
    assert lines[0].startswith("gateway/shop/web  False    one two")
    assert lines[1].startswith(" " * 27 + "e")
    assert all(len(line) <= 60 for line in lines)


def test_a_pipe_gets_one_line_for_each_object() -> None:
    columns = Columns.of([Row("a", "False", "")])
    assert "\n" not in columns.line(Row("a", "False", "word " * 500))
