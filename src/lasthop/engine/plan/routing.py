"""Where requests go: virtual hosts, routes in the spec's order, what is done to a request on the way, weighted backends."""

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
    """What a GRPCRoute asks of a call; an empty service or method means any."""

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
    """Only gRPC calls, whose path is made of service and method."""

    @property
    def precedence(self) -> tuple[int, ...]:
        """Sorts the more specific match first (HTTPRouteRule.matches in the spec). Where the spec leaves regular expressions
        open, they come between exact paths and prefixes, longer first. Matches of GRPCRoutes come before all others, because
        they take nothing from them but the calls that they are about."""
        if self.grpc:
            return (0, *self.grpc.precedence, -len(self.headers))
        rank = {PathType.EXACT: 0, PathType.REGEX: 1, PathType.PREFIX: 2}[self.path_type]
        return (1, rank, -len(self.path), not self.method, -len(self.headers), -len(self.query))


class HeaderEdit(msgspec.Struct, frozen=True):
    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class Headers(msgspec.Struct, frozen=True):
    request: HeaderEdit = HeaderEdit()
    response: HeaderEdit = HeaderEdit()


NO_HEADERS: Final = Headers()


class PathEdit(msgspec.Struct, frozen=True):
    """`prefix` None: the whole path becomes `value`; otherwise that prefix of it does."""

    value: str
    prefix: str | None = None


class Rewrite(msgspec.Struct, frozen=True):
    hostname: str = ""
    path: PathEdit | None = None


class Backend(msgspec.Struct, frozen=True):
    """`hop` None: the reference is not permitted or of an unknown kind, so its share of the requests gets a 500, or of the
    connections is closed. Everything else that can be wrong with a backend is decided behind the hop's name."""

    weight: int
    hop: Hop | None
    headers: Headers = NO_HEADERS
    rewrite: Rewrite | None = None
    upgrades_apart: bool = False
    """Requests that ask for an upgrade go by a hop of their own (`Protocol.H1_UPGRADE`)."""


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
    """A server that is asked before a request goes anywhere; what it does not allow, or cannot be asked about, is refused."""

    hop: Hop
    """Its protocol says how it is asked: over h2 with gRPC calls, otherwise with HTTP requests."""
    path: str = ""
    """Of an HTTP request: the prefix of the path that it is about."""
    request_headers: tuple[str, ...] = ()
    """What it is told. None named: of a gRPC call all, of an HTTP request those that are always told."""
    response_headers: tuple[str, ...] = ()
    """What an HTTP answer adds to the request. None named: all that is not about the answer itself."""
    max_body: int = 0
    """Zero: it is not told the body; otherwise a request with a larger one is refused."""


class Retry(msgspec.Struct, frozen=True):
    attempts: int
    codes: tuple[int, ...] = ()
    backoff: float | None = None


class Session(msgspec.Struct, frozen=True):
    """Which backend a client stays with is kept in a cookie or a header of this name."""

    name: str
    header: bool = False
    path: str = "/"
    lifetime: float | None = None


class Forward(msgspec.Struct, frozen=True):
    backends: tuple[Backend, ...]
    """Empty: every request is refused."""
    mirrors: tuple[Mirror, ...] = ()
    rewrite: Rewrite | None = None
    timeout: float | None = None
    """None: not set; zero: no limit."""
    try_timeout: float | None = None
    retry: Retry | None = None
    session: Session | None = None


class Refuse(msgspec.Struct, frozen=True):
    """The rule asks for something that cannot be done: 500 (UNAVAILABLE for gRPC) for whatever it matches, never as if it had
    not asked."""


class Route(msgspec.Struct, frozen=True):
    match: Match
    action: Forward | Redirect | Refuse
    origin: str
    """The route object, `kind namespace/name`: for the log."""
    headers: Headers = NO_HEADERS
    cors: Cors | None = None
    auth: ExternalAuth | None = None


class Stream(msgspec.Struct, frozen=True):
    """Where connections go that ask a listener for one name, or datagrams."""

    hostname: str
    """The SNI; empty: any."""
    origin: str = ""
    """The route object; empty: there is none, so that connections are closed."""
    backends: tuple[Backend, ...] = ()


class Parent(msgspec.Struct, frozen=True, gc=False):
    """What became of one parentRef."""

    owner: Key
    """The Gateway or ListenerSet that it names."""
    gateway: Key
    """The Gateway whose proxy serves it: the same, or the set's."""
    section_name: str
    port: int
    listeners: tuple[str, ...] = ()
    """Listeners that the route is attached to; empty if it was not accepted."""
    hosts: tuple[tuple[str, str], ...] = ()
    """(route table, hostname) pairs under which it is served."""
    protocols: tuple[Protocol, ...] = ()
    """The protocols to its backends, the one that asks most of them first."""
    problem: Problem | None = None
