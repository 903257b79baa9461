"""Virtual hosts: in which order the routes that are served under one hostname are tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from lasthop.api.meta import Key
from lasthop.resolve.attachment import route_hostname
from lasthop.resolve.hostnames import specificity
from lasthop.resolve.routes import read_route
from lasthop.store.graph import Graph

T = TypeVar("T")


class Rank(NamedTuple):
    """What precedence looks at besides matches."""

    hostname: tuple[int, int]
    """How specific the hostname is that the route itself names."""
    age: tuple[str, str]
    """Its creation, then {namespace}/{name}."""


def rank(g: Graph, route: Key, hostname: str) -> Rank | None:
    obj = read_route(g, route)
    return Rank(specificity(route_hostname(g, route, hostname)), obj.age) if obj else None


def in_order(routes: Iterable[tuple[Rank, Sequence[tuple[tuple[int, ...], T]]]]) -> list[T]:
    """Of route objects with the precedence of their matches, the matches in the spec's order: the route's own hostname, then
    the match, then the older route, then {namespace}/{name}, then its own order."""
    ranked = [
        (rank.hostname, precedence, rank.age, number, found)
        for rank, matches in routes
        for number, (precedence, found) in enumerate(matches)
    ]
    ranked.sort(key=lambda each: each[:4])
    return [found for *_, found in ranked]
