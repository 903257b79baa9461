"""Hostnames, against what they stand for: sets of names."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lasthop.resolve.hostnames import covers, fitting, intersection, most_specific, specificity

LABELS = ("a", "b", "c")
NAMES = [".".join(labels) for depth in (1, 2, 3, 4) for labels in itertools.product(LABELS, repeat=depth)]
PATTERNS = st.sampled_from(["", *(n for n in NAMES if n.count(".") < 3), *(f"*.{n}" for n in NAMES if n.count(".") < 2)])


def meant(pattern: str) -> frozenset[str]:
    """The names that it stands for: a wildcard stands for one label or more."""
    if not pattern:
        return frozenset(NAMES)
    if pattern.startswith("*."):
        return frozenset(name for name in NAMES if name.endswith(pattern[1:]))
    return frozenset({pattern})


@given(PATTERNS, PATTERNS)
def test_a_pattern_covers_what_it_contains(one: str, other: str) -> None:
    assert covers(one, other) == (meant(other) <= meant(one))


@given(PATTERNS, PATTERNS)
def test_the_fitting_patterns_are_those_that_cover_it(one: str, other: str) -> None:
    assert (one in fitting(other)) == (meant(other) <= meant(one))


@given(PATTERNS, PATTERNS)
def test_an_intersection_stands_for_what_both_stand_for(one: str, other: str) -> None:
    found = intersection(one, other)
    assert (meant(found) if found is not None else frozenset()) == meant(one) & meant(other)
    assert found == intersection(other, one)


@given(st.lists(PATTERNS, max_size=6), st.sampled_from(NAMES))
def test_the_most_specific_pattern_is_the_one_with_the_fewest_names(patterns: list[str], name: str) -> None:
    fitting = [p for p in patterns if name in meant(p)]
    found = most_specific(tuple(patterns), name)
    assert (found is None) == (not fitting)
    if found is not None:
        assert found in fitting
        assert all(meant(found) <= meant(pattern) for pattern in fitting)


@given(PATTERNS, PATTERNS)
def test_what_is_contained_comes_first(one: str, other: str) -> None:
    if meant(one) < meant(other):
        assert specificity(one) < specificity(other)
