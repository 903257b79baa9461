"""Rules that were tried in the order of a list: where Gateway API's own order differs, and the difference can show."""

from __future__ import annotations

import pytest

from lasthop_import.documents import Document, SourceText
from lasthop_import.model import Match, PathKind, PathMatch, Rule, ValueMatch
from lasthop_import.notes import Source
from lasthop_import.order import order_notes

DOCUMENT = Document({"apiVersion": "v1", "kind": "Old", "metadata": {"name": "x"}}, SourceText(""))


def rule(number: int, match: Match, *hostnames: str) -> Rule:
    return Rule(Source(DOCUMENT, ("rules", number)), "shop", "x", (), hostnames, matches=(match,))


def prefix(value: str, headers: tuple[ValueMatch, ...] = (), method: str = "") -> Match:
    return Match(PathMatch(PathKind.STRING, value), headers, method=method)


EXACT = Match(PathMatch(PathKind.EXACT, "/a/b"))
HEADER, OTHER = (ValueMatch("x", value) for value in ("1", "2"))


@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        (prefix("/"), prefix("/a"), True),
        (prefix("/a"), prefix("/"), False),
        (prefix("/a"), EXACT, True),
        (prefix("/ab"), EXACT, False),
        (prefix("/a"), prefix("/b/c"), False),
        (prefix("/a"), prefix("/a", headers=(HEADER,)), True),
        (prefix("/a", headers=(HEADER,)), prefix("/a/b", headers=(OTHER,)), False),
        (prefix("/a", method="GET"), prefix("/a/b", method="POST"), False),
        (prefix("/a"), Match(PathMatch(PathKind.REGEX, "/x.*")), True),
        (Match(), EXACT, True),
    ],
)
def test_an_overlapping_rule_that_overtakes_is_noted(first: Match, second: Match, changes: bool) -> None:
    notes = list(order_notes([rule(0, first), rule(1, second)]))
    assert [note.reason for note in notes] == (["order-changed"] if changes else [])


def test_rules_of_different_hosts_do_not_meet() -> None:
    assert not list(order_notes([rule(0, prefix("/"), "a.example"), rule(1, prefix("/a"), "b.example")]))
