"""Compares hostnames with the sets of names that they match, for all pairs."""

from __future__ import annotations

import itertools

from lasthop.engine.resolve.routing.hostnames import covers, fitting, intersection, most_specific, specificity

LABELS = ("a", "b", "c")
NAMES = [".".join(labels) for depth in (1, 2, 3, 4) for labels in itertools.product(LABELS, repeat=depth)]
PATTERNS = ["", *(n for n in NAMES if n.count(".") < 3), *(f"*.{n}" for n in NAMES if n.count(".") < 2)]


def _meant(pattern: str) -> frozenset[str]:
    """The names that it stands for: a wildcard stands for one label or more."""
    if not pattern:
        return frozenset(NAMES)
    if pattern.startswith("*."):
        return frozenset(name for name in NAMES if name.endswith(pattern[1:]))
    return frozenset({pattern})


MEANT = {pattern: _meant(pattern) for pattern in PATTERNS}
PAIRS = list(itertools.product(PATTERNS, repeat=2))


def test_a_pattern_covers_exactly_its_names() -> None:
    assert [(a, b) for a, b in PAIRS if covers(a, b) != (MEANT[b] <= MEANT[a])] == []


def test_the_fitting_patterns_are_those_that_cover_it() -> None:
    assert [(a, b) for a, b in PAIRS if (a in fitting(b)) != (MEANT[b] <= MEANT[a])] == []


def test_an_intersection_matches_exactly_the_names_of_both() -> None:
    for one, other in PAIRS:
        common = intersection(one, other)
        assert (MEANT[common] if common is not None else frozenset()) == MEANT[one] & MEANT[other], (one, other)
        assert common == intersection(other, one)


def test_the_most_specific_pattern_is_the_one_with_the_fewest_names() -> None:
    """Of three patterns, since an order that is right for pairs may still be wrong for more; names up to two labels."""
    short = [pattern for pattern in PATTERNS if pattern.count(".") < 2]
    for patterns in itertools.permutations(short, 3):
        for name in ("a", "a.b", "b.a.b"):
            matching = [pattern for pattern in patterns if name in MEANT[pattern]]
            winner = most_specific(patterns, name)
            assert (winner is None) == (not matching), (patterns, name)
            assert winner is None or (winner in matching and all(MEANT[winner] <= MEANT[p] for p in matching)), (
                patterns,
                name,
            )


def test_contained_patterns_come_first() -> None:
    assert [(a, b) for a, b in PAIRS if MEANT[a] < MEANT[b] and not specificity(a) < specificity(b)] == []
