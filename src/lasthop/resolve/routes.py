"""HTTPRoutes: rules as matches and actions, and everything in them that cannot be done."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import re2

from lasthop.api.meta import Key
from lasthop.api.routes import (
    BackendObjectReference,
    HTTPRequestMirrorFilter,
    HTTPRoute,
    HTTPRouteMatch,
    HTTPRouteRule,
    SessionPersistence,
)
from lasthop.plan import reasons
from lasthop.plan.routing import (
    Backend,
    Forward,
    Match,
    Mirror,
    PathType,
    Refuse,
    Retry,
    Route,
    RouteProblem,
    Session,
    ValueMatch,
)
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.backends import Target, problem, target
from lasthop.resolve.durations import seconds
from lasthop.resolve.filters import fold
from lasthop.resolve.filters import problems as filter_problems
from lasthop.store.graph import Graph
from lasthop.store.store import read

SESSION_NAME = "lasthop-session"


class RouteVerdict(msgspec.Struct, frozen=True):
    """What a route's own text is worth, for one Gateway."""

    refused: tuple[RouteProblem, ...] = ()
    """What rules ask for and cannot have; those rules answer 500."""
    all_refused: bool = False
    refs: tuple[RouteProblem, ...] = ()
    """References that lead nowhere or may not be followed."""


def refusals(rule: HTTPRouteRule, field: str) -> tuple[RouteProblem, ...]:
    """Everything in a rule's text that cannot be done."""
    return tuple(_refusals(rule, field))


def _refusals(rule: HTTPRouteRule, field: str) -> Iterator[RouteProblem]:
    yield from filter_problems(rule.filters, f"{field}.filters")
    for number, ref in enumerate(rule.backend_refs):
        yield from filter_problems(ref.filters, f"{field}.backendRefs[{number}].filters", on_backend=True)
    for number, match in enumerate(rule.matches):
        place = f"{field}.matches[{number}]"
        if match.path.type == PathType.REGEX:
            yield from _regex_problem(match.path.value, f"{place}.path")
        for kind, values in (("headers", match.headers), ("queryParams", match.query_params)):
            for index, value in enumerate(values):
                if value.type != "Exact":
                    yield from _regex_problem(value.value, f"{place}.{kind}[{index}]")


def _regex_problem(pattern: str, field: str) -> Iterator[RouteProblem]:
    """Tried with Envoy's own engine: one bad expression would make Envoy refuse the whole route table."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, f"{pattern!r} is no RE2 regular expression ({said}); correct it", field)


def targets(g: Graph, route: Key) -> tuple[Target, ...]:
    """Every Service port that the route may send to, mirrors included."""
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return ()
    found: dict[Target, None] = {}
    for number, rule in enumerate(obj.spec.rules):
        if not refusals(rule, f"spec.rules[{number}]"):
            for ref in (*rule.backend_refs, *(mirror.backend_ref for mirror in _mirrors(rule))):
                resolved = target(g, route, ref)
                if isinstance(resolved, Target):
                    found[resolved] = None
    return tuple(found)


def _mirrors(rule: HTTPRouteRule) -> list[HTTPRequestMirrorFilter]:
    return [f.request_mirror for f in rule.filters if f.request_mirror]


def verdict(g: Graph, route: Key, gateway: Key) -> RouteVerdict:
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return RouteVerdict()
    refused: list[RouteProblem] = []
    refs: list[RouteProblem] = []
    bad_rules = 0
    for number, rule in enumerate(obj.spec.rules):
        field = f"spec.rules[{number}]"
        found = refusals(rule, field)
        bad_rules += bool(found)
        refs += [p for p in found if p.reason == reasons.INVALID_KIND]
        refused += [p for p in found if p.reason != reasons.INVALID_KIND]
        for index, ref in enumerate(rule.backend_refs):
            refs += _reference_problem(g, route, gateway, ref, f"{field}.backendRefs[{index}]")
        for index, filter in enumerate(rule.filters):
            if filter.request_mirror:
                place = f"{field}.filters[{index}].requestMirror"
                refs += _reference_problem(g, route, gateway, filter.request_mirror.backend_ref, place)
    all_bad = bool(refused) and bad_rules == len(obj.spec.rules)
    return RouteVerdict(tuple(refused), all_bad, tuple(dict.fromkeys(refs)))


def _reference_problem(g: Graph, route: Key, gateway: Key, ref: BackendObjectReference, field: str) -> list[RouteProblem]:
    resolved = target(g, route, ref)
    found = problem(g, gateway, resolved) if isinstance(resolved, Target) else resolved
    return [msgspec.structs.replace(found, field=field)] if found else []


def routes(g: Graph, route: Key, gateway: Key) -> tuple[Route, ...]:
    """The route's matches with what is to be done, in its own order."""
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return ()
    found: list[Route] = []
    for number, rule in enumerate(obj.spec.rules):
        refused = refusals(rule, f"spec.rules[{number}]")
        for match in rule.matches:
            if refused:
                if not any(p.field.endswith(".path") for p in refused):
                    found.append(Route(_match(match), Refuse(), route.path))
            else:
                found.append(_route(g, route, gateway, rule, _match(match)))
    return tuple(found)


def _route(g: Graph, route: Key, gateway: Key, rule: HTTPRouteRule, match: Match) -> Route:
    filters = fold(rule.filters, match.path, match.path_type)
    if filters.redirect:
        return Route(match, filters.redirect, route.path, filters.headers, filters.cors)
    request, backend = rule.timeouts.request, rule.timeouts.backend_request
    retry = rule.retry
    action = Forward(
        backends=_backends(g, route, gateway, rule, match),
        mirrors=tuple(m for m in (_mirror(g, route, gateway, f) for f in _mirrors(rule)) if m),
        rewrite=filters.rewrite,
        timeout=seconds(request) or None if request else None,
        try_timeout=seconds(backend) or None if backend else None,
        retry=Retry(retry.attempts, retry.codes, seconds(retry.backoff) if retry.backoff else None) if retry else None,
        session=_session(rule.session_persistence) if rule.session_persistence else None,
    )
    return Route(match, action, route.path, filters.headers, filters.cors)


def _backends(g: Graph, route: Key, gateway: Key, rule: HTTPRouteRule, match: Match) -> tuple[Backend, ...]:
    found = []
    for ref in rule.backend_refs:
        if ref.weight:
            to = target(g, route, ref)
            hop = Hop(gateway, to.service, to.port, Protocol.AUTO) if isinstance(to, Target) else None
            filters = fold(ref.filters, match.path, match.path_type)
            found.append(Backend(ref.weight, hop, filters.headers, filters.rewrite))
    return tuple(found)


def _mirror(g: Graph, route: Key, gateway: Key, mirror: HTTPRequestMirrorFilter) -> Mirror | None:
    to = target(g, route, mirror.backend_ref)
    if not isinstance(to, Target):
        return None
    part = mirror.fraction
    numerator = part.numerator if part else 100 if mirror.percent is None else mirror.percent
    return Mirror(Hop(gateway, to.service, to.port, Protocol.AUTO), numerator, part.denominator if part else 100)


def _session(wanted: SessionPersistence) -> Session:
    if wanted.type == "Header":
        return Session(wanted.header.name or SESSION_NAME, header=True)
    permanent = wanted.cookie.lifetime_type == "Permanent" and wanted.absolute_timeout
    lifetime = seconds(wanted.absolute_timeout) if permanent else None
    return Session(wanted.cookie.name or SESSION_NAME, path=wanted.cookie.path, lifetime=lifetime)


def _match(match: HTTPRouteMatch) -> Match:
    path_type = PathType(match.path.type)
    path = match.path.value.rstrip("/") or "/" if path_type is PathType.PREFIX else match.path.value
    # Of several entries with an equal name only the first counts (the spec).
    headers = {h.name.lower(): h for h in reversed(match.headers)}
    query = {q.name: q for q in reversed(match.query_params)}
    return Match(
        path,
        path_type,
        tuple(sorted(ValueMatch(n, v.value, v.type != "Exact") for n, v in headers.items())),
        tuple(sorted(ValueMatch(n, v.value, v.type != "Exact") for n, v in query.items())),
        match.method,
    )
