"""Indexes many routes of one hostname by path, so that Envoy tries only a few per request.

Envoy tries routes one after the other, some 227 instructions each, so 1,000 of them cost 2.4 times as much as one
(docs/measurements.md#many-routes). The tree is only an index. Its keys are all literal path values. A leaf lists, in the
spec's order, every route whose path value is a string prefix of the key, and Envoy evaluates their `Route.match`.

The index is exact: a route that matches path P has a path value V that is a string prefix of P. The longest key K that is a
prefix of P is at least as long as V, so V is a prefix of K, and the route is in K's leaf. Regular expressions are in every
leaf.

Upgrade requests have a separate tree, so that other requests do not try their routes. The tree joins encoded routes, so an
edit costs a walk over the sorted paths and a copy of bytes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import regex_pb2
from xds.type.matcher.v3.matcher_pb2 import Matcher

from lasthop.engine.outputs.envoy.encode import enclosed, encode, field, packed
from lasthop.engine.outputs.envoy.route_messages import UPGRADE

FROM: Final = 32
"""Minimum number of routes for a tree."""
MAX_SIZE_FACTOR: Final = 8
"""Limit of the leaves' total size as a multiple of the routes. Nested paths and regular expressions repeat, and bytes cost
too."""

ANY_VALUE: Final = regex_pb2.RegexMatcher(regex=".*", google_re2=regex_pb2.RegexMatcher.GoogleRE2())

_ON_NO_MATCH: Final = Matcher.ON_NO_MATCH_FIELD_NUMBER
_ON_MATCH_MATCHER: Final = Matcher.OnMatch.MATCHER_FIELD_NUMBER


class Indexed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def upgrade(self) -> Sequence[bytes]: ...
    @property
    def other(self) -> Sequence[bytes]: ...


def indexed(entries: Sequence[Indexed]) -> list[bytes] | None:
    """Returns the routes as an encoded Matcher, in chunks; None if a plain list is better."""
    if len(entries) < FROM:
        return None
    tree = leaves([entry.path for entry in entries], most=MAX_SIZE_FACTOR * len(entries))
    if tree is None:
        return None
    other = _matcher(tree, [entry.other for entry in entries])
    if all(entry.upgrade == entry.other for entry in entries):
        return other
    upgrades = _upgrades(_matcher(tree, [entry.upgrade for entry in entries]))
    return [*upgrades, *enclosed(_ON_NO_MATCH, enclosed(_ON_MATCH_MATCHER, other))]


def _upgrades(matcher: list[bytes]) -> list[bytes]:
    """Encodes a Matcher.matcher_list that requires the upgrade header and contains the tree."""
    predicate = Matcher.MatcherList.Predicate()
    predicate.single_predicate.input.CopyFrom(_header(UPGRADE))
    predicate.single_predicate.value_match.safe_regex.CopyFrom(ANY_VALUE)
    listed = Matcher.MatcherList.FieldMatcher(predicate=predicate)
    on_match = enclosed(Matcher.MatcherList.FieldMatcher.ON_MATCH_FIELD_NUMBER, enclosed(_ON_MATCH_MATCHER, matcher))
    matchers = enclosed(Matcher.MatcherList.MATCHERS_FIELD_NUMBER, [encode(listed), *on_match])
    return enclosed(Matcher.MATCHER_LIST_FIELD_NUMBER, matchers)


def _matcher(tree: dict[str, list[int]], routes: Sequence[Sequence[bytes]]) -> list[bytes]:
    # In the order of their keys, so that equal trees have equal bytes.
    keys = sorted((path.encode(), path) for path in tree if path)
    entries = [_map_entry(key, _listed(routes, tree[path])) for key, path in keys]
    by = encode(Matcher.MatcherTree(input=_header(":path")))
    prefixes = enclosed(Matcher.MatcherTree.PREFIX_MATCH_MAP_FIELD_NUMBER, entries)
    chunks = enclosed(Matcher.MATCHER_TREE_FIELD_NUMBER, [by, *prefixes])
    return [*chunks, field(_ON_NO_MATCH, _leaf(_listed(routes, tree[""])))] if tree[""] else chunks


def _listed(routes: Sequence[Sequence[bytes]], numbers: list[int]) -> tuple[bytes, ...]:
    return tuple(body for number in numbers for body in routes[number])


@functools.lru_cache(maxsize=16_384)
def _map_entry(key: bytes, listed: tuple[bytes, ...]) -> bytes:
    """Encodes a leaf and its key. It is cached, because an edit changes only a few leaves."""
    value = field(Matcher.MatcherTree.MatchMap.MapEntry.VALUE_FIELD_NUMBER, _leaf(listed))
    entry = field(Matcher.MatcherTree.MatchMap.MapEntry.KEY_FIELD_NUMBER, key) + value
    return field(Matcher.MatcherTree.MatchMap.MAP_FIELD_NUMBER, entry)


def _header(name: str) -> extension_pb2.TypedExtensionConfig:
    value = packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=value)


def leaves(paths: Sequence[str], most: int | None = None) -> dict[str, list[int]] | None:
    """Returns the numbers of the routes to try, in order, for each key. An empty path belongs to a route for any path. The
    empty key applies if no other matches. None if the leaves together exceed `most`.

    In sorted order the prefixes of a path come before it, one inside the other, so a stack holds them.
    """
    by_path: dict[str, list[int]] = {"": []}
    for number, path in enumerate(paths):
        by_path.setdefault(path, []).append(number)
    if most is not None and sum(size for _, size in _sizes(by_path)) > most:
        return None
    tree: dict[str, list[int]] = {}
    stack: list[str] = []
    for path in sorted(by_path):
        while stack and not path.startswith(stack[-1]):
            stack.pop()
        tree[path] = sorted((*tree[stack[-1]], *by_path[path])) if stack else by_path[path]
        stack.append(path)
    return tree


def _sizes(by_path: dict[str, list[int]]) -> Iterator[tuple[str, int]]:
    """Yields the sizes of the leaves without building them."""
    stack: list[tuple[str, int]] = []
    for path in sorted(by_path):
        while stack and not path.startswith(stack[-1][0]):
            stack.pop()
        stack.append((path, len(by_path[path]) + (stack[-1][1] if stack else 0)))
        yield stack[-1]


def _leaf(listed: tuple[bytes, ...]) -> bytes:
    """Encodes an OnMatch. A single route needs no list, which saves a cache miss."""
    if len(listed) == 1:
        packed_type, body = _ROUTE, listed[0]
    else:
        packed_type, body = _ROUTE_LIST, b"".join(field(rc.RouteList.ROUTES_FIELD_NUMBER, route) for route in listed)
    config = packed_type + field(AnyMessage.VALUE_FIELD_NUMBER, body)
    action = _NAME + field(extension_pb2.TypedExtensionConfig.TYPED_CONFIG_FIELD_NUMBER, config)
    return field(Matcher.OnMatch.ACTION_FIELD_NUMBER, action)


_NAME: Final = encode(extension_pb2.TypedExtensionConfig(name="routes"))
_ROUTE: Final = encode(packed(rc.Route()))
_ROUTE_LIST: Final = encode(packed(rc.RouteList()))
"""The prefix of the packed bytes: an Any with a type and no value."""
