"""Rules in the order of a list: cases in which Gateway API's order differs and a request can show it."""

from __future__ import annotations

import pytest

from lasthop_import.documents import Document, SourceText
from lasthop_import.model import ImportedMatch, ImportedRule, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.notes import SourceRef
from lasthop_import.order import order_notes

DOCUMENT = Document({"apiVersion": "v1", "kind": "Old", "metadata": {"name": "x"}}, SourceText(""))


def rule(number: int, match: ImportedMatch, *hostnames: str) -> ImportedRule:
    return ImportedRule(SourceRef(DOCUMENT, ("rules", number)), "shop", "x", (), hostnames, matches=(match,))


def prefix(value: str, headers: tuple[ImportedValueMatch, ...] = (), method: str = "") -> ImportedMatch:
    return ImportedMatch(PathMatch(PathKind.STRING, value), headers, method=method)


EXACT = ImportedMatch(PathMatch(PathKind.EXACT, "/a/b"))
HEADER, OTHER = (ImportedValueMatch("x", value) for value in ("1", "2"))


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
        (prefix("/a"), ImportedMatch(PathMatch(PathKind.REGEX, "/x.*")), True),
        (ImportedMatch(), EXACT, True),
    ],
)
def test_an_overlapping_rule_that_overtakes_is_noted(first: ImportedMatch, second: ImportedMatch, changes: bool) -> None:
    notes = list(order_notes([rule(0, first), rule(1, second)]))
    assert [note.reason for note in notes] == (["order-changed"] if changes else [])


def test_rules_of_different_hosts_do_not_meet() -> None:
    assert not list(order_notes([rule(0, prefix("/"), "a.example"), rule(1, prefix("/a"), "b.example")]))


def test_matches_of_one_rule_do_not_overtake_each_other() -> None:
    assert not list(order_notes([rule(0, prefix("/")), rule(0, prefix("/a"))]))


def test_rule_that_another_one_overtakes_is_severe() -> None:
    """Its requests lead to another backend, which may have been out of reach before."""
    assert [note.level for note in order_notes([rule(0, prefix("/")), rule(1, prefix("/admin"))])] == ["high"]
