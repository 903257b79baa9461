"""Encodes one HTTPRoute or GRPCRoute for Envoy. A virtual host joins the cached bytes of its routes.

Parts that cannot be built, or that Envoy refuses, degrade step by step, and only for their route object:

    AS_WRITTEN ──> REFUSING ──> PATHS_ONLY ──> NOTHING
    the route      500 where    500 at its     the match cannot be expressed
                   it matches   literal paths  in Envoy at all

So its requests get a 500 (UNAVAILABLE for gRPC) and never a response of another route for the same hostname.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import msgspec
from envoy.config.route.v3 import route_components_pb2 as rc
from msgspec.structs import replace

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import encode, field
from lasthop.engine.outputs.envoy.quarantine import complaint
from lasthop.engine.outputs.envoy.resource import ROUTES, content_hash
from lasthop.engine.outputs.envoy.route_messages import UPGRADE, Listening, Messages, envoy_routes, refusing
from lasthop.engine.plan import reasons
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.routing import Match, PathType, Route
from lasthop.engine.resolve.gateways.listeners import table_listener
from lasthop.engine.resolve.routing.attachment import Rank, rank_of
from lasthop.engine.resolve.routing.routes import read_route, refusing_routes, routes
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash

MAX_SHOWN_LENGTH: Final = 200
"""Characters of a path or an error that a message shows."""
_UPGRADE_HEADER_MATCH: Final = encode(
    rc.Route(match=rc.RouteMatch(headers=[rc.HeaderMatcher(name=UPGRADE, present_match=True)]))
)
"""Encoded messages merge by concatenation: after a Route's bytes this adds one more header to its match."""


class ServedLevel(IntEnum):
    """The served part of a route, the largest first."""

    AS_WRITTEN = 0
    REFUSING = 1
    PATHS_ONLY = 2
    NOTHING = 3


class EncodedMatch(msgspec.Struct, frozen=True, gc=False):
    """One match of a route object."""

    path: str
    """Its key in the index of paths (see `index_path`)."""
    precedence: tuple[int, ...]
    upgrade: tuple[bytes, ...]
    """Route messages for upgrade requests; equal to `other` if they need no separate hop."""
    other: tuple[bytes, ...]

    def listed(self) -> bytes:
        """Returns the fields of a VirtualHost, for a list of routes in order."""
        upgrading = () if self.upgrade == self.other else (message + _UPGRADE_HEADER_MATCH for message in self.upgrade)
        return b"".join(field(rc.VirtualHost.ROUTES_FIELD_NUMBER, message) for message in (*upgrading, *self.other))


class EncodedRoute(msgspec.Struct, frozen=True, gc=False):
    entries: tuple[EncodedMatch, ...]
    """In the route's own order."""
    digest: str
    """Digest of all bytes; empty without entries."""
    failure: Problem | None = None
    """Why a part of the route could not be built and returns 500."""
    whole: bool = False
    """Whether the failure affects the whole route."""


@query
def encoded_route(g: Graph, route: Key, gateway: Key, scheme: str, port: int, level: ServedLevel) -> EncodedRoute:
    """Encodes a route with several hostnames only once."""
    return _encoded(g, route, gateway, scheme, port, level)


def _encoded(g: Graph, route: Key, gateway: Key, scheme: str, port: int, level: ServedLevel) -> EncodedRoute:
    """Encodes each match of a route at a level. A match that cannot be encoded gets the next level.

    The result depends neither on hostnames nor on other routes, so an edit of one route encodes one route.
    """
    resolved = g.shielded(routes, route, gateway)
    plan, error = (refusing_routes(g, route), resolved.error) if isinstance(resolved, Crash) else (resolved, None)
    results = [_entry(planned, Listening(scheme, port), level) for planned in plan]
    entries = tuple(entry for entry, _ in results if entry)
    body = b"".join(part for entry in entries for part in (*entry.upgrade, *entry.other))
    digest = content_hash(body) if entries else ""
    if error is None and not any(failure for _, failure in results):
        return EncodedRoute(entries, digest)
    failed = [planned for planned, (_, failure) in zip(plan, results, strict=True) if failure]
    subject = (
        "the route"
        if error
        else f"{len(failed)} of {len(plan)} matches, {failed[0].match.path[:MAX_SHOWN_LENGTH]!r} the first of them,"
    )
    why = error or next(failure for _, failure in results if failure)
    message = f"{subject} cannot be translated for Envoy and returns 500 ({repr(why)[:MAX_SHOWN_LENGTH]})"
    problem = Problem(reasons.INTERNAL_ERROR, message)
    return EncodedRoute(entries, digest, problem, error is not None or len(failed) == len(plan))


def _entry(route: Route, listening: Listening, level: ServedLevel) -> tuple[EncodedMatch | None, Exception | None]:
    """Encodes a match; returns the first error, if any."""
    attempts: tuple[Callable[[], EncodedMatch | None], ...] = (
        lambda: _as_written(route, listening),
        lambda: _refusing(route.match, route.origin),
        lambda: _paths_only(route),
    )
    first_error: Exception | None = None
    for attempt in attempts[level:]:
        try:
            return attempt(), first_error
        except Exception as error:
            first_error = first_error or error
    return None, first_error


def _as_written(route: Route, listening: Listening) -> EncodedMatch:
    messages: Messages = envoy_routes(route, listening)
    other = tuple(map(encode, messages.other))
    upgrade = other if messages.upgrade is messages.other else tuple(map(encode, messages.upgrade))
    return EncodedMatch(index_path(route.match), route.match.precedence, upgrade, other)


def _refusing(match: Match, origin: str) -> EncodedMatch:
    body = (encode(refusing(match, origin)),)
    return EncodedMatch(index_path(match), match.precedence, body, body)


def _paths_only(route: Route) -> EncodedMatch | None:
    """Encodes a match without headers, query and method. It matches more requests, with the precedence of such a match."""
    match = replace(route.match, headers=(), query=(), method="")
    return None if match.path_type is PathType.REGEX else _refusing(match, route.origin)


def index_path(match: Match) -> str:
    """Returns the literal path of a match; empty for a regular expression, which may match any path."""
    return "" if match.path_type is PathType.REGEX else match.path


# --- under a hostname ------------------------------------------------------------------------------------------------


class ServedRoute(msgspec.Struct, frozen=True, gc=False):
    """A route object under one hostname of one table."""

    encoded: EncodedRoute
    level: ServedLevel
    rank: Rank
    part: str
    complaint: str = ""
    """Envoy's error, once the route is known to be at fault."""


def listening_at(listener: ListenerPlan | None) -> Listening:
    if listener is None:
        return Listening("http", 80)
    return Listening("https" if listener.protocol == "HTTPS" else "http", listener.port)


@query
def served_route(g: Graph, route: Key, gateway: Key, table: str, hostname: str) -> ServedRoute | None:
    """Returns the first level of a route that Envoy has not refused."""
    obj = read_route(g, route)
    if obj is None:
        return None
    encode_at = encoded_route if len(obj.spec.hostnames) > 1 else _encoded
    part = f"{gateway.path}/{table}#{hostname or '*'}#{route}"
    listening = listening_at(table_listener(g, gateway, table))
    first_refusal = ""
    for level in ServedLevel:
        encoded = encode_at(g, route, gateway, *listening, level)
        refused = complaint(g, ROUTES, part, encoded.digest) if encoded.entries else None
        if refused is None:
            return ServedRoute(encoded, level, rank_of(obj, hostname), part, first_refusal)
        first_refusal = first_refusal or refused
    raise AssertionError("nothing cannot be refused")


def unserved(g: Graph, route: Key, gateway: Key, hosts: tuple[tuple[str, str], ...]) -> tuple[tuple[Problem, ...], bool]:
    """Returns why parts of a route return 500 (refused by Envoy, or not built), and whether all parts do."""
    served = [(host, result) for table, host in hosts if (result := served_route(g, route, gateway, table, host))]
    problems = tuple(dict.fromkeys(problem for host, result in served for problem in _problems(result, host or "*")))
    return problems, bool(problems) and all(result.complaint or result.encoded.whole for _, result in served)


def _problems(served: ServedRoute, host: str) -> Iterator[Problem]:
    if served.encoded.failure:
        yield served.encoded.failure
    if served.complaint:
        message = f"Envoy refused the route under the hostname {host}, so it returns 500 there: {served.complaint}"
        yield Problem(reasons.REFUSED_BY_PROXY, message)
