"""Matches of an Istio delegate that lie within those of the delegating rule, and their intersection."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop_import.systems.istio.delegates import conflict, merged

ROOTS: tuple[dict[str, str], ...] = ({"exact": "/a/b"}, {"prefix": "/a"}, {"regex": "/a.*"})
LEAVES: dict[str, dict[str, str]] = {
    "same": {"exact": "/a/b"},
    "below": {"exact": "/a/c"},
    "prefix": {"prefix": "/a/b"},
    "elsewhere": {"prefix": "/b"},
    "wider": {"prefix": "/"},
    "regex": {"regex": "/a/b"},
}
WITHIN = {("exact", "same"), ("prefix", "same"), ("prefix", "below"), ("prefix", "prefix")}


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: next(iter(root)))
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("key", ["uri", "scheme", "method", "authority"])
def test_string_of_a_delegate_is_within_that_of_the_root(root: dict[str, str], leaf: str, key: str) -> None:
    within = (next(iter(root)), leaf) in WITHIN
    assert conflict({key: root}, {key: LEAVES[leaf]}) is not within


@pytest.mark.parametrize("key", ["uri", "scheme", "method", "authority", "port", "sourceNamespace"])
def test_a_limit_of_one_side_is_no_conflict_unless_the_delegate_gives_it_up(key: str) -> None:
    value: Any = {"port": 80, "sourceNamespace": "a"}.get(key, {"exact": "x"})
    assert not conflict({}, {key: value})
    assert conflict({key: value}, {}) is (key == "sourceNamespace")


@pytest.mark.parametrize(
    ("root", "leaf", "expected"),
    [
        ({"headers": {"x": {"exact": "1"}}}, {"headers": {"x": {"exact": "2"}}}, True),
        ({"headers": {"x": {"exact": "1"}}}, {"headers": {"y": {"exact": "2"}}}, False),
        ({"queryParams": {"x": {"exact": "1"}}}, {"queryParams": {"x": {"prefix": "1"}}}, True),
        ({"sourceLabels": {"a": "1"}}, {"sourceLabels": {"a": "2"}}, True),
        ({"sourceLabels": {"a": "1"}}, {"sourceLabels": {"b": "2"}}, False),
        ({"port": 80}, {"port": 443}, True),
        ({"port": 80}, {"port": 80}, False),
        ({"ignoreUriCase": True}, {}, True),
        ({"gateways": ["a/x"]}, {"gateways": ["a/x", "a/y"]}, True),
        ({"gateways": ["a/x", "a/y"]}, {"gateways": ["a/y"]}, False),
        ({"gateways": ["a/x"]}, {}, False),
    ],
)
def test_conflicts_of_other_conditions(root: dict[str, Any], leaf: dict[str, Any], expected: bool) -> None:
    assert conflict(root, leaf) is expected


def test_a_merged_match_has_the_conditions_of_both_and_the_narrower_of_two() -> None:
    root = {"uri": {"prefix": "/a"}, "method": {"exact": "GET"}, "headers": {"x": {"exact": "1"}}, "port": 80}
    leaf = {"uri": {"exact": "/a/b"}, "headers": {"y": {"exact": "2"}}}
    assert merged(root, leaf) == {
        "uri": {"exact": "/a/b"},
        "method": {"exact": "GET"},
        "headers": {"x": {"exact": "1"}, "y": {"exact": "2"}},
        "port": 80,
    }
