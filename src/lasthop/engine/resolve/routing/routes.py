"""Routes: the targets of their rules, their problems, and for HTTPRoutes and GRPCRoutes the matches and actions."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from lasthop.base.api import routes as api
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons, routing
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backend_traffic import KIND as TRAFFIC_POLICY
from lasthop.engine.resolve.backends.backend_traffic import configured_session, effective_session
from lasthop.engine.resolve.backends.backends import BackendTarget, speaks_h2c, target
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.routing.external_auth import PROTOCOLS as AUTH_PROTOCOLS
from lasthop.engine.resolve.routing.external_auth import external_auth
from lasthop.engine.resolve.routing.filters import fold, merged_edits
from lasthop.engine.resolve.routing.http_syntax import grpc_path_regex, seconds, seconds_if_set
from lasthop.engine.resolve.routing.refusals import RouteJudgement, judge
from lasthop.engine.resolve.routing.route_references import mirrored, references
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import OBJECTS

SESSION_NAME = "lasthop-session-{:08x}"
"""The default name of a session: one per Service port, so that rules do not overwrite each other's sessions. If a policy
configures sessions, each rule has its own name (GEP-1619: rules with the same backend must not share sessions)."""


PROTOCOLS: Final = {"HTTPRoute": Protocol.AUTO, "GRPCRoute": Protocol.H2}
"""Route kinds for requests, and the protocol to their backends."""


def read_route(g: Graph, key: Key) -> api.Route | None:
    return cast("api.Route | None", OBJECTS.of(g, key))


def request_rules(obj: api.RequestRoute) -> tuple[api.RequestRouteRule, ...]:
    return obj.spec.rules


class RouteVerdict(msgspec.Struct, frozen=True):
    """The problems of a route at one Gateway."""

    refused: tuple[Problem, ...] = ()
    """Unsupported settings of rules, which are refused or omitted."""
    left_out: tuple[Problem, ...] = ()
    """Why the route is not served under some of its hostnames."""
    all_refused: bool = False
    refs: tuple[Problem, ...] = ()
    """Problems of references."""
    unauthorized: bool = False
    """Whether one of the references names an ExternalAuth server."""


NOTHING_WRONG: Final = RouteVerdict()


@query
def route_judgement(g: Graph, route: Key, gateway: Key) -> RouteJudgement:
    obj = read_route(g, route)
    return judge(_rules(obj), limits(g, gateway)) if obj else RouteJudgement()


def _rules(obj: api.Route) -> Sequence[api.RequestRouteRule | api.StreamRouteRule]:
    return obj.spec.rules


class RouteTargets(NamedTuple):
    permitted: tuple[tuple[BackendTarget, Protocol | None], ...]
    """Permitted targets, each with its protocol if it differs from the protocol of the route's backends."""
    refused: tuple[BackendTarget, ...]
    """Targets in other namespaces without a ReferenceGrant."""
    used: frozenset[BackendTarget]
    """Targets that get traffic: a backendRef with weight 0 gets none."""


def targets(g: Graph, route: Key, gateway: Key) -> RouteTargets:
    """Returns the targets of all references in a route's rules."""
    obj = read_route(g, route)
    permitted: dict[tuple[BackendTarget, Protocol | None], None] = {}
    refused: dict[BackendTarget, None] = {}
    used: set[BackendTarget] = set()
    for rule, judgement in zip(_rules(obj) if obj else (), route_judgement(g, route, gateway).rules, strict=True):
        for reference in () if judgement.problems else references(rule):
            resolved = target(g, route, reference.ref)
            if isinstance(resolved, BackendTarget):
                permitted[resolved, reference.protocol] = None
                if getattr(reference.ref, "weight", 1):
                    used.add(resolved)
            elif resolved.reason == reasons.REF_NOT_PERMITTED:
                refused[BackendTarget(resolved.about[0], reference.ref.port)] = None
    return RouteTargets(tuple(permitted), tuple(refused), frozenset(used))


@query
def verdict(g: Graph, route: Key, gateway: Key, protocol: Protocol) -> RouteVerdict:
    """Returns the problems of a route for one protocol to its backends, for its status."""
    obj = read_route(g, route)
    if obj is None:
        return RouteVerdict()
    refused: list[Problem] = []
    refs: list[Problem] = []
    unauthorized = False
    judgement = route_judgement(g, route, gateway)
    for number, rule in enumerate(_rules(obj)):
        for rule_problem in judgement.rules[number].problems:
            (refs if rule_problem.reason == reasons.INVALID_KIND else refused).append(rule_problem)
        for reference in references(rule):
            if problem := _reference_problem(g, route, gateway, reference.ref, reference.protocol or protocol):
                refs.append(problem.at(f"spec.rules[{number}].{reference.field}"))
                unauthorized |= reference.authorizes
    if not refused and not refs:
        return NOTHING_WRONG
    return RouteVerdict(
        tuple(refused), all_refused=judgement.all_refused, refs=tuple(dict.fromkeys(refs)), unauthorized=unauthorized
    )


def _reference_problem(
    g: Graph, route: Key, gateway: Key, ref: api.BackendObjectReference, protocol: Protocol
) -> Problem | None:
    resolved = target(g, route, ref)
    if isinstance(resolved, Problem):
        return resolved
    tls = hop_tls(g, gateway, resolved.backend, resolved.port, protocol)
    return tls.problem if isinstance(tls, Refused) else None


def routes(g: Graph, route: Key, gateway: Key) -> tuple[routing.Route, ...]:
    """Returns the route's matches with their actions, in its own order."""
    obj = read_route(g, route)
    if obj is None or isinstance(obj, api.StreamRoute):
        return ()
    judgement = route_judgement(g, route, gateway)
    planned: list[routing.Route] = []
    for place in served_matches(obj, judgement):
        rule = request_rules(obj)[place.rule]
        match = _planned(written_matches(rule)[place.match])
        if judgement.rules[place.rule].problems:
            planned.append(routing.Route(match, routing.Refuse(), str(route)))
        else:
            planned.append(_route(g, route, gateway, rule, match))
    return tuple(planned)


class MatchPlace(NamedTuple):
    """The position of a match in the spec of its route."""

    rule: int
    match: int


def served_matches(obj: api.RequestRoute, judgement: RouteJudgement) -> Iterator[MatchPlace]:
    """Yields the position of each match that `routes` returns, in the same order."""
    for number, (rule, judgement_of_rule) in enumerate(zip(request_rules(obj), judgement.rules, strict=True)):
        for match_number in range(len(written_matches(rule))):
            if match_number not in judgement_of_rule.unmatchable:
                yield MatchPlace(number, match_number)


def refusing_routes(g: Graph, route: Key) -> tuple[routing.Route, ...]:
    """Returns the matches of a route whose query crashed. All of them refuse requests."""
    obj = read_route(g, route)
    if obj is None or isinstance(obj, api.StreamRoute):
        return ()
    refusing: list[routing.Route] = []
    for rule in request_rules(obj):
        for match in written_matches(rule):
            # A match that raises here as well cannot match any request.
            with contextlib.suppress(Exception):
                refusing.append(routing.Route(_planned(match), routing.Refuse(), str(route)))
    return tuple(refusing)


def written_matches(rule: api.RequestRouteRule) -> tuple[api.HTTPRouteMatch | api.GRPCRouteMatch, ...]:
    """Returns the matches of a rule. An empty list matches everything, like a missing one."""
    return rule.matches or ((api.GRPCRouteMatch(),) if isinstance(rule, api.GRPCRouteRule) else (api.HTTPRouteMatch(),))


@functools.lru_cache(maxsize=1024)
def _planned(match: api.HTTPRouteMatch | api.GRPCRouteMatch) -> routing.Match:
    """Returns the match of the plan. The cache shares it among routes with equal matches."""
    return _grpc_match(match) if isinstance(match, api.GRPCRouteMatch) else _match(match)


def _route(g: Graph, route: Key, gateway: Key, rule: api.RequestRouteRule, match: routing.Match) -> routing.Route:
    filters = fold(rule.filters, match.path, match.path_type)
    auth = _auth(g, route, gateway, rule)
    if isinstance(auth, routing.Refuse):
        return routing.Route(match, auth, str(route))
    if filters.redirect:
        return routing.Route(match, filters.redirect, str(route), filters.headers, filters.cors, auth)
    backends, headers = _backends(g, route, gateway, rule, match), filters.headers
    if any(backend.headers != routing.NO_EDITS for backend in backends):
        # Envoy applies the backend's edits before the rule's, so the rule would take precedence.
        backends = tuple(replace(b, headers=merged_edits(headers, b.headers)) for b in backends)
        headers = routing.NO_EDITS
    timeouts, retry = (rule.timeouts, rule.retry) if isinstance(rule, api.HTTPRouteRule) else (api.HTTPRouteTimeouts(), None)
    action = routing.Forward(
        backends=backends,
        mirrors=tuple(_mirrors(g, route, gateway, rule)),
        rewrite=filters.rewrite,
        timeout=seconds_if_set(timeouts.request),
        try_timeout=seconds_if_set(timeouts.backend_request),
        retry=routing.Retry(retry.attempts, retry.codes, seconds_if_set(retry.backoff)) if retry else None,
        session=_session(g, route, rule, backends),
    )
    return routing.Route(match, action, str(route), headers, filters.cors, auth)


def _auth(g: Graph, route: Key, gateway: Key, rule: api.RequestRouteRule) -> routing.ExternalAuth | routing.Refuse | None:
    """Returns Refuse if the reference to the server is not permitted. Its cluster decides whether the server can be used."""
    auth_filter = next((f.external_auth for f in rule.filters if f.external_auth), None)
    if auth_filter is None:
        return None
    hop = hop_to(g, route, gateway, auth_filter.backend_ref, AUTH_PROTOCOLS[auth_filter.protocol])
    return external_auth(auth_filter, hop) if hop else routing.Refuse()


def hop_to(g: Graph, route: Key, gateway: Key, ref: api.BackendObjectReference, protocol: Protocol) -> Hop | None:
    """Returns the hop to the target of a reference; None if the reference is invalid."""
    backend = target(g, route, ref)
    return Hop(gateway, backend.backend, backend.port, protocol) if isinstance(backend, BackendTarget) else None


def needs_separate_upgrades(g: Graph, hop: Hop) -> bool:
    """Returns whether upgrade requests need a separate hop. This is independent of policies, so that no edit of a policy
    touches a route."""
    return hop.protocol is Protocol.AUTO and speaks_h2c(g, hop.backend, hop.port)


def _backends(
    g: Graph, route: Key, gateway: Key, rule: api.RequestRouteRule, match: routing.Match
) -> tuple[routing.WeightedBackend, ...]:
    backends = []
    for ref in rule.backend_refs:
        if ref.weight:
            filters = fold(ref.filters, match.path, match.path_type)
            hop = hop_to(g, route, gateway, ref, PROTOCOLS[route.kind])
            separate = hop is not None and needs_separate_upgrades(g, hop)
            backends.append(routing.WeightedBackend(ref.weight, hop, filters.headers, filters.rewrite, separate))
    return tuple(backends)


def _mirrors(g: Graph, route: Key, gateway: Key, rule: api.RequestRouteRule) -> Iterator[routing.Mirror]:
    for mirror in (filter.request_mirror for filter in rule.filters):
        if mirror and (hop := hop_to(g, route, gateway, mirror.backend_ref, PROTOCOLS[route.kind])):
            yield routing.Mirror(hop, *mirrored(mirror))


def unsupported_sessions(g: Graph, route: Key) -> tuple[Problem, ...]:
    """Returns the backendRefs whose session persistence is not supported, because the rule has several backends."""
    obj, problems = read_route(g, route), []
    for number, rule in enumerate(request_rules(obj) if obj and not isinstance(obj, api.StreamRoute) else ()):
        refs = [(index, ref) for index, ref in enumerate(rule.backend_refs) if ref.weight]
        for index, ref in refs if len(refs) > 1 and not rule.session_persistence else ():
            backend = target(g, route, ref)
            session = configured_session(g, backend.backend) if isinstance(backend, BackendTarget) else None
            if session:
                message = f"session persistence of {session.by} does not work with several backendRefs; use one"
                problems.append(unsupported_value(message, f"spec.rules[{number}].backendRefs[{index}]"))
    return tuple(problems)


def _session(
    g: Graph, route: Key, rule: api.RequestRouteRule, backends: tuple[routing.WeightedBackend, ...]
) -> routing.Session | None:
    """Returns the session persistence of the rule, or else of its only backend."""
    session, of_rule = rule.session_persistence, ""
    hop = backends[0].hop if len(backends) == 1 else None
    if session is None and hop and (configured := effective_session(g, hop.gateway, hop.backend)):
        session = configured.persistence
        of_rule = f"{route}{rule.name or written_matches(rule)}" if configured.by.kind == TRAFFIC_POLICY else ""
    if session is None:
        return None
    scope = "".join([*(b.hop.name for b in backends if b.hop), of_rule])
    own_name = SESSION_NAME.format(zlib.crc32(scope.encode()))
    if session.type == "Header":
        return routing.Session(session.header.name or own_name, header=True)
    permanent = session.cookie.lifetime_type == "Permanent" and session.absolute_timeout
    lifetime = seconds(session.absolute_timeout) if permanent else None
    return routing.Session(session.cookie.name or own_name, path=session.cookie.path, lifetime=lifetime)


def _match(match: api.HTTPRouteMatch) -> routing.Match:
    path_type = routing.PathType(match.path.type)
    path = match.path.value.rstrip("/") or "/" if path_type is routing.PathType.PREFIX else match.path.value
    # Of several entries with an equal name only the first counts (the spec).
    query = {q.name: q for q in reversed(match.query_params)}
    return routing.Match(
        path,
        path_type,
        _headers(match.headers),
        tuple(sorted(routing.ValueMatch(n, v.value, v.type != "Exact") for n, v in query.items())),
        match.method,
    )


def _grpc_match(match: api.GRPCRouteMatch) -> routing.Match:
    called = routing.GrpcMethod(match.method.service, match.method.method, match.method.type != "Exact")
    if called.regex or (called.method and not called.service):
        path, kind = grpc_path_regex(called.service, called.method), routing.PathType.REGEX
    elif called.method:
        path, kind = f"/{called.service}/{called.method}", routing.PathType.EXACT
    else:
        path, kind = f"/{called.service}", routing.PathType.PREFIX
    return routing.Match(path, kind, _headers(match.headers), grpc=called)


def _headers(headers: tuple[api.HTTPValueMatch, ...]) -> tuple[routing.ValueMatch, ...]:
    # Of several entries with an equal name only the first counts (the spec).
    by_name = {header.name.lower(): header for header in reversed(headers)}
    return tuple(sorted(routing.ValueMatch(name, header.value, header.type != "Exact") for name, header in by_name.items()))
