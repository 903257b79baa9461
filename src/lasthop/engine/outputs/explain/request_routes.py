"""Finds the route of a virtual host that matches a request, or the nearest ones if none does."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import re2

from lasthop.base.api import routes as api
from lasthop.base.api.meta import Key
from lasthop.base.text.printable import some
from lasthop.base.text.suggestions import closest
from lasthop.engine.outputs.envoy.encoded_routes import ServedLevel, served_route
from lasthop.engine.outputs.explain.fact import Fact, bad, plain, warning
from lasthop.engine.outputs.explain.routes import matched
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.request import Request
from lasthop.engine.plan.routing import Match, PathType, Route, ValueMatch
from lasthop.engine.resolve.routing.attachment import ATTACHED, MISDIRECTED, in_order, misdirected, parents
from lasthop.engine.resolve.routing.budgets import VIRTUAL_HOSTS, RouteCost, left_out
from lasthop.engine.resolve.routing.hostnames import covers, fitting
from lasthop.engine.resolve.routing.http_syntax import shown
from lasthop.engine.resolve.routing.routes import (
    MatchPlace,
    read_route,
    request_rules,
    route_judgement,
    routes,
    served_matches,
    written_matches,
)
from lasthop.engine.store.graph import Graph


def fits(match: Match, request: Request) -> bool:
    """Returns whether a match covers a request that `plan.request.normalize` has normalized."""
    return next(misses(match, request), None) is None


def fits_path(match: Match, request: Request) -> bool:
    return next(_path(match, request), None) is None


def misses(match: Match, request: Request) -> Iterator[str]:
    """Describes the parts of a match that the request does not meet."""
    yield from _path(match, request)
    if match.grpc and not request.grpc:
        yield "it is not a gRPC call (content-type application/grpc)"
    if match.method and match.method != request.method:
        yield f"the method is not {match.method}"
    for header in match.headers:
        yield from _value(f"header {header.name}", header, request.values(header.name))
    for parameter in match.query:
        value = request.query(parameter.name)
        yield from _value(f"query parameter {parameter.name}", parameter, [] if value is None else [value])


def _path(match: Match, request: Request) -> Iterator[str]:
    path = request.path
    match match.path_type:
        case PathType.EXACT:
            fitting = path == match.path
        case PathType.PREFIX:
            fitting = match.path == "/" or path == match.path or path.startswith(f"{match.path}/")
        case PathType.REGEX:
            fitting = matches_regex(match.path, path)
    if not fitting:
        yield "the path does not match"


def _value(subject: str, expected: ValueMatch, values: list[str]) -> Iterator[str]:
    if not values:
        yield f"{subject} is missing"
    elif expected.regex and not any(matches_regex(expected.value, value) for value in values):
        yield f"{subject} is {shown(values[0])}, which does not match {shown(expected.value)}"
    elif not expected.regex and expected.value not in values:
        yield f"{subject} is {shown(values[0])}, not {shown(expected.value)}"


def matches_regex(pattern: str, value: str) -> bool:
    """Returns whether the whole text matches. A pattern that RE2 refuses matches nothing, because it is never sent to
    Envoy."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.fullmatch(value.encode(errors="surrogateescape")) is not None


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re2._Regexp[bytes] | None:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError):
        return None


SHOWN: Final = 5
"""Limit of near misses, hostnames and routes in an explanation."""


class CandidateMatch(NamedTuple):
    key: Key
    place: MatchPlace
    route: Route
    match: Match
    """The match in Envoy, reduced if Envoy refused the original."""
    level: ServedLevel
    complaint: str


def candidates(g: Graph, gateway: Key, table: str, hostname: str) -> list[CandidateMatch]:
    """Returns the matches of a virtual host in order of precedence."""
    cut = {route for route, _ in left_out(g, gateway, table, hostname)}
    ranked = []
    for cost in VIRTUAL_HOSTS.of(g, gateway, table, hostname):
        if not isinstance(cost, RouteCost) or cost.route in cut:
            continue
        served = served_route(g, cost.route, gateway, table, hostname)
        if served:
            matches = _of_route(g, gateway, cost.route, served.level, served.complaint)
            ranked.append((served.rank, [(candidate.match.precedence, candidate) for candidate in matches]))
    return in_order(ranked)


def _of_route(g: Graph, gateway: Key, key: Key, level: ServedLevel, complaint: str) -> Iterator[CandidateMatch]:
    obj = read_route(g, key)
    if obj is None or isinstance(obj, api.StreamRoute):
        return
    places = served_matches(obj, route_judgement(g, key, gateway))
    for place, route in zip(places, routes(g, key, gateway), strict=True):
        if match := _at_level(route.match, level):
            yield CandidateMatch(key, place, route, match, level, complaint)


def _at_level(match: Match, level: ServedLevel) -> Match | None:
    """Returns Envoy's match at a level (see `encoded_routes`)."""
    if level in (ServedLevel.AS_WRITTEN, ServedLevel.REFUSING):
        return match
    if level is ServedLevel.NOTHING or match.path_type is PathType.REGEX:
        return None
    return msgspec.structs.replace(match, headers=(), query=(), method="")


class VirtualHost(NamedTuple):
    """The virtual host of a request. Without `exists` and `elsewhere`, the hostname is unknown."""

    name: str = ""
    exists: bool = False
    elsewhere: bool = False
    """The hostname belongs to another listener of the port, so the request is misdirected (421)."""


def virtual_host(g: Graph, gateway: Key, listener: ListenerPlan, host: str) -> VirtualHost:
    elsewhere = misdirected(g, gateway, listener.table) if listener.protocol == "HTTPS" else frozenset()
    for pattern in fitting(host):
        if pattern != MISDIRECTED and VIRTUAL_HOSTS.size(g, gateway, listener.table, pattern):
            return VirtualHost(pattern, exists=True)
        if pattern in elsewhere:
            return VirtualHost(pattern, elsewhere=True)
    return VirtualHost()


def choose(matches: Iterable[CandidateMatch], request: Request) -> CandidateMatch | None:
    return next((candidate for candidate in matches if fits(candidate.match, request)), None)


# --- in words --------------------------------------------------------------------------------------------------------


def described(g: Graph, candidate: CandidateMatch) -> str:
    """Returns `HTTPRoute shop/web rule 1 (name): GET /path/*`."""
    rule = rules_of(g, candidate.key)[candidate.place.rule]
    written = matched(written_matches(rule)[candidate.place.match])
    return f"{candidate.key} rule {candidate.place.rule}{f' ({rule.name})' if rule.name else ''}: {written}"


def rules_of(g: Graph, key: Key) -> Sequence[api.RequestRouteRule]:
    """Returns the rules of a request route; empty for stream routes."""
    obj = read_route(g, key)
    return () if obj is None or isinstance(obj, api.StreamRoute) else request_rules(obj)


def passed_over(g: Graph, matches: Iterable[CandidateMatch], winner: CandidateMatch, request: Request) -> Iterator[Fact]:
    """Yields matches for this path with higher precedence, and why they do not match."""
    listed = 0
    for candidate in matches:
        if candidate is winner or listed == SHOWN:
            return
        if fits_path(candidate.match, request):
            listed += 1
            missing = ", ".join(misses(candidate.match, request))
            yield plain(f"not {described(g, candidate)}, which comes first: {missing}", object=candidate.key)


def near_misses(g: Graph, matches: list[CandidateMatch], request: Request) -> Iterator[Fact]:
    """Yields the nearest matches for a request that none matches."""

    def distance(candidate: CandidateMatch) -> tuple[int, float]:
        if fits_path(candidate.match, request):
            return len(list(misses(candidate.match, request))), 0.0
        return 100, -difflib.SequenceMatcher(None, candidate.match.path, request.path).ratio()

    # The comparison of texts is slow, and late matches are rarely near.
    for candidate in sorted(matches[:200], key=distance)[:SHOWN]:
        yield plain(f"nearest: {described(g, candidate)}: {', '.join(misses(candidate.match, request))}", object=candidate.key)
    if len(matches) > SHOWN:
        yield plain(f"and {len(matches) - SHOWN} more matches")


def other_hostnames(g: Graph, gateway: Key, listeners: Iterable[ListenerPlan], host: str) -> Iterator[Fact]:
    """Yields the existing hostnames, for a request whose host matches none."""
    names: dict[str, Key] = {}
    for listener in listeners:
        for route in ATTACHED.of(g, listener.owner, listener.name):
            for parent in parents(g, route):
                for table, name in parent.hosts:
                    if (parent.gateway, table) == (gateway, listener.table):
                        names.setdefault(name, route)
    close = closest(host, names)
    if close:
        yield plain(f"did you mean {close}? It is a hostname of {names[close]}", object=names[close])
    hostnames = sorted(names)
    yield plain(f"hostnames there: {some(hostnames, SHOWN)}" if hostnames else "no route is attached there")


def wider_hosts(g: Graph, gateway: Key, listener: ListenerPlan, host: VirtualHost, request: Request) -> Iterator[Fact]:
    """Yields routes of less specific hostnames that would match, if the more specific hostname had no routes."""
    for pattern in fitting(request.host):
        if pattern == host.name or not covers(pattern, host.name):
            continue
        if winner := choose(candidates(g, gateway, listener.table, pattern), request):
            text = f"{described(g, winner)} of {pattern or 'any hostname'} would match, but {host.name} is more specific"
            yield warning(f"{text} and has routes or a listener of its own", object=winner.key)


def unattached(g: Graph, gateway: Key, all_routes: Iterable[Key], host: str) -> Iterator[Fact]:
    """Yields routes for this hostname that name the Gateway but are not accepted there."""
    refused = ((key, why) for key in all_routes if (why := _refusal(g, gateway, key)) and _may_serve(g, key, host))
    for key, why in itertools.islice(refused, SHOWN):
        yield bad(f"{key} is not accepted: ", object=key, why=why)


def _refusal(g: Graph, gateway: Key, route: Key) -> Problem | None:
    return next((parent.problem for parent in parents(g, route) if parent.gateway == gateway and parent.problem), None)


def _may_serve(g: Graph, key: Key, host: str) -> bool:
    obj = read_route(g, key)
    names = tuple(name.lower() for name in obj.spec.hostnames) if obj else ()
    return not names or any(covers(name, host) for name in names)


def left_out_routes(g: Graph, gateway: Key, table: str, hostname: str) -> Iterator[Fact]:
    for route, limit in sorted(left_out(g, gateway, table, hostname))[:SHOWN]:
        yield bad(f"{route} is left out under this hostname, because it exceeds the limit {limit}", object=route)
