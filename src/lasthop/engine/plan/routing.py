"""Routing: matches, filters and weighted backends of each route, in the order that the spec defines."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.upstream import Hop, Protocol


class PathType(StrEnum):
    EXACT = "Exact"
    PREFIX = "PathPrefix"
    REGEX = "RegularExpression"


class ValueMatch(msgspec.Struct, frozen=True, order=True):
    name: str
    value: str
    regex: bool = False


class GrpcMethod(msgspec.Struct, frozen=True):
    """A match of a GRPCRoute; an empty service or method matches any."""

    service: str = ""
    method: str = ""
    regex: bool = False

    @property
    def precedence(self) -> tuple[int, int, int, int]:
        """Characters in the service, then in the method (GRPCRouteRule.matches in the spec). Where the spec leaves regular
        expressions open, they come after exact names, longer first."""
        kind = 1 if self.regex else 0
        return (*(kind if self.service else 2, -len(self.service)), *(kind if self.method else 2, -len(self.method)))


class Match(msgspec.Struct, frozen=True):
    path: str
    path_type: PathType
    headers: tuple[ValueMatch, ...] = ()
    query: tuple[ValueMatch, ...] = ()
    method: str = ""
    grpc: GrpcMethod | None = None
    """Matches only gRPC calls, whose path consists of service and method."""

    @property
    def precedence(self) -> tuple[int, ...]:
        """Sorts the more specific match first (HTTPRouteRule.matches in the spec). Where the spec leaves regular expressions
        open, they come between exact paths and prefixes, longer first. Matches of GRPCRoutes come before all others, because
        they match only gRPC calls."""
        if self.grpc:
            return (0, *self.grpc.precedence, -len(self.headers))
        rank = {PathType.EXACT: 0, PathType.REGEX: 1, PathType.PREFIX: 2}[self.path_type]
        return (1, rank, -len(self.path), not self.method, -len(self.headers), -len(self.query))


class HeaderEdit(msgspec.Struct, frozen=True):
    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class HeaderEdits(msgspec.Struct, frozen=True):
    request: HeaderEdit = HeaderEdit()
    response: HeaderEdit = HeaderEdit()


NO_EDITS: Final = HeaderEdits()


class PathEdit(msgspec.Struct, frozen=True):
    """Replaces a prefix of the path by `value`, or with `prefix` None the whole path."""

    value: str
    prefix: str | None = None


class Rewrite(msgspec.Struct, frozen=True):
    hostname: str = ""
    path: PathEdit | None = None


class WeightedBackend(msgspec.Struct, frozen=True):
    """A backendRef of a rule. `hop` is None if the reference is not permitted or of an unknown kind: its share of the requests
    gets a 500, its share of the connections is closed. All other errors of a backend affect only the cluster of the hop."""

    weight: int
    hop: Hop | None
    headers: HeaderEdits = NO_EDITS
    rewrite: Rewrite | None = None
    separate_upgrades: bool = False
    """Requests with an Upgrade header use a separate hop (`Protocol.H1_UPGRADE`)."""


class Mirror(msgspec.Struct, frozen=True):
    hop: Hop
    numerator: int
    denominator: int


class Redirect(msgspec.Struct, frozen=True):
    status: int
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    path: PathEdit | None = None


class Cors(msgspec.Struct, frozen=True):
    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    expose: tuple[str, ...]
    credentials: bool
    max_age: int


class ExternalAuth(msgspec.Struct, frozen=True):
    """A server that authorizes each request before routing. Requests that it denies, or for which it is unreachable, are
    refused."""

    hop: Hop
    """Its protocol selects the API: gRPC over h2, otherwise HTTP."""
    path: str = ""
    """For HTTP: the prefix of the authorization request's path."""
    request_headers: tuple[str, ...] = ()
    """Headers that the server receives. Empty: all for gRPC, for HTTP only those that are always sent."""
    response_headers: tuple[str, ...] = ()
    """Headers that an HTTP response adds to the request. Empty: all that do not describe the response itself."""
    max_body: int = 0
    """Bytes of the body that the server receives; larger requests are refused. Zero: no body is sent."""


class Retry(msgspec.Struct, frozen=True):
    attempts: int
    codes: tuple[int, ...] = ()
    backoff: float | None = None


class Session(msgspec.Struct, frozen=True):
    """Session persistence: a cookie or a header of this name stores the backend of a client."""

    name: str
    header: bool = False
    path: str = "/"
    lifetime: float | None = None


class Forward(msgspec.Struct, frozen=True):
    backends: tuple[WeightedBackend, ...]
    """Empty: every request is refused."""
    mirrors: tuple[Mirror, ...] = ()
    rewrite: Rewrite | None = None
    timeout: float | None = None
    """None: not set; zero: no limit."""
    try_timeout: float | None = None
    retry: Retry | None = None
    session: Session | None = None


class Refuse(msgspec.Struct, frozen=True):
    """The rule requires something unsupported. All requests that it matches get a 500 (UNAVAILABLE for gRPC), because to
    ignore the setting would be unsafe."""


class Route(msgspec.Struct, frozen=True):
    match: Match
    action: Forward | Redirect | Refuse
    origin: str
    """The route object as `kind namespace/name`, for the log."""
    headers: HeaderEdits = NO_EDITS
    cors: Cors | None = None
    auth: ExternalAuth | None = None


class Stream(msgspec.Struct, frozen=True):
    """Forwards the connections to a listener with one server name, or its datagrams."""

    hostname: str
    """The SNI; empty: any."""
    origin: str = ""
    """The route object; empty if there is none and connections are closed."""
    backends: tuple[WeightedBackend, ...] = ()


class Parent(msgspec.Struct, frozen=True, gc=False):
    """The result of one parentRef."""

    owner: Key
    """The Gateway or ListenerSet that the parentRef names."""
    gateway: Key
    """The Gateway whose proxy serves it: the owner itself, or the ListenerSet's Gateway."""
    section_name: str
    port: int
    listeners: tuple[str, ...] = ()
    """Listeners that the route attaches to; empty if it was not accepted."""
    hosts: tuple[tuple[str, str], ...] = ()
    """(route table, hostname) pairs that serve the route."""
    protocols: tuple[Protocol, ...] = ()
    """The protocols to the backends, the most demanding first."""
    problem: Problem | None = None
