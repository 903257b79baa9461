"""Where requests go: virtual hosts, routes in the spec's order, weighted backends."""

from __future__ import annotations

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.upstream import Hop


class ValueMatch(msgspec.Struct, frozen=True, order=True):
    name: str
    value: str


class Match(msgspec.Struct, frozen=True):
    path: str
    exact: bool
    headers: tuple[ValueMatch, ...] = ()
    query: tuple[ValueMatch, ...] = ()
    method: str = ""

    @property
    def precedence(self) -> tuple[bool, int, bool, int, int]:
        """Sorts the more specific match first (HTTPRouteRule.matches in the spec)."""
        return (not self.exact, -len(self.path), not self.method, -len(self.headers), -len(self.query))


class Backend(msgspec.Struct, frozen=True):
    """`hop` None: the reference is not permitted or of an unknown kind, so its share of the requests gets a 500. Everything
    else that can be wrong with a backend is decided behind the hop's name."""

    weight: int
    hop: Hop | None


class Route(msgspec.Struct, frozen=True):
    match: Match
    backends: tuple[Backend, ...]
    """Empty: every request gets a 500."""
    origin: str
    """The route object, `namespace/name`: for the log."""


class VirtualHost(msgspec.Struct, frozen=True):
    hostname: str
    """Empty: any."""
    routes: tuple[Route, ...]


class RouteProblem(msgspec.Struct, frozen=True):
    reason: str
    message: str


class Parent(msgspec.Struct, frozen=True):
    """What became of one parentRef."""

    gateway: Key
    section_name: str
    port: int
    listeners: tuple[str, ...] = ()
    """Listeners that the route is attached to; empty if it was not accepted."""
    hosts: tuple[tuple[str, str], ...] = ()
    """(route table, hostname) pairs under which it is served."""
    problem: RouteProblem | None = None
