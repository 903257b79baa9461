"""Many routes under one hostname: a tree over the paths that leaves only few routes to try.

Envoy tries routes one after the other, some 227 instructions each, so 1,000 of them cost 2.4 times as much as one
(facts/envoy.md 0.6). The tree is only an index. Its keys are all literal path values; a leaf lists, in the spec's order, every
route whose path value is a string prefix of the key, and `Route.match` decides as ever.

Why that is exact: a route that matches path P has a path value V that is a string prefix of P. The longest key K that is a
prefix of P is no shorter than V, so V is a prefix of K, and the route is in K's leaf. Regular expressions are in every leaf.

Requests that ask for an upgrade have a tree of their own, so that all others need not try, and bring into the caches, routes
that are not for them.
"""

from __future__ import annotations

from typing import Any, Final

from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.type.matcher.v3 import http_inputs_pb2
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import matcher_pb2, regex_pb2

from lasthop.outputs.envoy.encode import packed
from lasthop.outputs.envoy.route_messages import UPGRADE, Messages
from lasthop.plan.routing import Match, PathType

FROM: Final = 32
"""Fewer routes are not worth a tree."""
MOST: Final = 8
"""Leaves together may hold this many times the routes; nested paths and regular expressions repeat, and bytes cost too."""

ANY_VALUE: Final = regex_pb2.RegexMatcher(regex=".*", google_re2=regex_pb2.RegexMatcher.GoogleRE2())

Routes = list[tuple[Match, Messages]]


def indexed(routes: Routes) -> Any | None:
    """The routes as a matcher; None where the plain list is better."""
    if len(routes) < FROM:
        return None
    tree = leaves([match for match, _ in routes])
    if sum(len(leaf) for leaf in tree.values()) > MOST * len(routes):
        return None
    other = _matcher(tree, [messages.other for _, messages in routes])
    if not any(messages.differ for _, messages in routes):
        return other
    matcher = matcher_pb2.Matcher()
    upgrades = matcher.matcher_list.matchers.add()
    upgrades.predicate.single_predicate.input.CopyFrom(_header(UPGRADE))
    upgrades.predicate.single_predicate.value_match.safe_regex.CopyFrom(ANY_VALUE)
    upgrades.on_match.matcher.CopyFrom(_matcher(tree, [messages.upgrade for _, messages in routes]))
    matcher.on_no_match.matcher.CopyFrom(other)
    return matcher


def _matcher(tree: dict[str, list[int]], messages: list[list[Any]]) -> Any:
    matcher = matcher_pb2.Matcher()
    matcher.matcher_tree.input.CopyFrom(_header(":path"))
    for path, numbers in tree.items():
        if path:
            matcher.matcher_tree.prefix_match_map.map[path].action.CopyFrom(_leaf(messages, numbers))
    if tree[""]:
        matcher.on_no_match.action.CopyFrom(_leaf(messages, tree[""]))
    return matcher


def _header(name: str) -> Any:
    value = packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=value)


def leaves(matches: list[Match]) -> dict[str, list[int]]:
    """For each key the numbers of the routes to try, in order. The empty key: what to try where no other fits."""
    by_value: dict[str, list[int]] = {}
    for number, match in enumerate(matches):
        by_value.setdefault("" if match.path_type is PathType.REGEX else match.path, []).append(number)
    tree = {}
    for key in ("", *(value for value in by_value if value)):
        prefixes = (key[:length] for length in range(len(key) + 1))
        tree[key] = sorted(number for prefix in prefixes for number in by_value.get(prefix, ()))
    return tree


def _leaf(messages: list[list[Any]], numbers: list[int]) -> Any:
    listed = [message for number in numbers for message in messages[number]]
    # One alone needs no list around it, which would be one more thing to bring into the caches.
    action = listed[0] if len(listed) == 1 else rc.RouteList(routes=listed)
    return extension_pb2.TypedExtensionConfig(name="routes", typed_config=packed(action))
