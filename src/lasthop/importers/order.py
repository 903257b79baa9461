"""Finds rules that were tried in the order of a list, and are tried in another: Gateway API sorts by specificity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lasthop.importers.model import Match, PathKind, PathMatch, Rule
from lasthop.importers.notes import Category, Note
from lasthop.resolve.hostnames import intersection

MOST: Final = 200
"""Rules of one route that are compared with each other."""
_ANY: Final = PathMatch(PathKind.SEGMENT, "/")
_RANKS: Final = {PathKind.EXACT: 0, PathKind.REGEX: 1, PathKind.SEGMENT: 2, PathKind.STRING: 2}


def order_notes(rules: Sequence[Rule]) -> Iterator[Note]:
    """Yields the rules that now take requests from one that used to be tried before them. `rules` are in the old order."""
    groups: dict[tuple[object, ...], list[Rule]] = {}
    for rule in rules:
        groups.setdefault((rule.namespace, rule.route), []).append(rule)
    for found in groups.values():
        for number, later in enumerate(found[:MOST]):
            earlier = next((each for each in found[:number] if _overtakes(later, each)), None)
            if earlier is not None and earlier.hops != later.hops:
                text = f"was tried after {earlier.source.field}, and is more specific, so it takes these requests first now"
                yield Note(Category.CHANGED, "order-changed", text, later.source)


def _overtakes(later: Rule, earlier: Rule) -> bool:
    if not set(later.listeners) & set(earlier.listeners) or not _share_a_host(later.hostnames, earlier.hostnames):
        return False
    any_match = (Match(),)
    return any(
        _rank(a) < _rank(b) and _overlap(a, b) for a in later.matches or any_match for b in earlier.matches or any_match
    )


def _share_a_host(some: Sequence[str], others: Sequence[str]) -> bool:
    return not some or not others or any(intersection(a, b) is not None for a in some for b in others)


def _rank(match: Match) -> tuple[object, ...]:
    path = match.path or _ANY
    return (_RANKS[path.kind], -len(path.value), not match.method, -len(match.headers), -len(match.query))


def _overlap(a: Match, b: Match) -> bool:
    """Returns whether some request may fit both; regular expressions are taken to fit any path."""
    if a.method and b.method and a.method != b.method:
        return False
    exact = {each.name.lower(): each.value for each in a.headers if not each.regex}
    if any(not each.regex and exact.get(each.name.lower(), each.value) != each.value for each in b.headers):
        return False
    one, other = a.path or _ANY, b.path or _ANY
    if PathKind.REGEX in (one.kind, other.kind):
        return True
    if one.kind is PathKind.EXACT and other.kind is PathKind.EXACT:
        return one.value == other.value
    if one.kind is PathKind.EXACT:
        return one.value.startswith(other.value)
    if other.kind is PathKind.EXACT:
        return other.value.startswith(one.value)
    return one.value.startswith(other.value) or other.value.startswith(one.value)
