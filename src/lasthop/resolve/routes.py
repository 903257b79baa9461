"""HTTPRoutes: rules as matches and backends, and the order in which the spec tries them."""

from __future__ import annotations

import msgspec

from lasthop.api.meta import Key
from lasthop.api.routes import HTTPRoute, HTTPRouteMatch, HTTPRouteRule
from lasthop.plan.routing import Backend, Match, Route, RouteProblem, ValueMatch
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.backends import Target, problem, target
from lasthop.store.graph import Graph
from lasthop.store.store import read


class RouteVerdict(msgspec.Struct, frozen=True):
    """What a route's own text is worth, for one Gateway."""

    unsupported: tuple[str, ...] = ()
    """Rules that ask for something we do not do; they answer 500."""
    all_unsupported: bool = False
    refs: tuple[RouteProblem, ...] = ()


def unsupported(rule: HTTPRouteRule) -> list[str]:
    found = [f"filter {f.type}" for f in rule.filters]
    found += [f"filter {f.type} on backendRef {ref.name}" for ref in rule.backend_refs for f in ref.filters]
    for match in rule.matches:
        if match.path.type not in ("Exact", "PathPrefix"):
            found.append(f"path match {match.path.type}")
        found += [f"{m.type} match of {m.name}" for m in (*match.headers, *match.query_params) if m.type != "Exact"]
    return list(dict.fromkeys(found))


def targets(g: Graph, route: Key) -> tuple[Target, ...]:
    """Every Service port that the route may send to."""
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return ()
    found: dict[Target, None] = {}
    for rule in obj.spec.rules:
        if not unsupported(rule):
            for ref in rule.backend_refs:
                resolved = target(g, route, ref)
                if isinstance(resolved, Target):
                    found[resolved] = None
    return tuple(found)


def verdict(g: Graph, route: Key, gateway: Key) -> RouteVerdict:
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return RouteVerdict()
    missing, refs = [], []
    bad_rules = 0
    for number, rule in enumerate(obj.spec.rules):
        not_served = unsupported(rule)
        bad_rules += bool(not_served)
        missing += [f"rules[{number}]: {what} is not supported" for what in not_served]
        for ref in rule.backend_refs:
            resolved = target(g, route, ref)
            found = problem(g, gateway, resolved) if isinstance(resolved, Target) else resolved
            if found:
                refs.append(RouteProblem(found.reason, f"rules[{number}]: {found.message}"))
    all_bad = bool(bad_rules) and bad_rules == len(obj.spec.rules)
    return RouteVerdict(tuple(missing), all_bad, tuple(dict.fromkeys(refs)))


def routes(g: Graph, route: Key, gateway: Key) -> tuple[Route, ...]:
    """The route's matches with their backends, in its own order."""
    obj = read(g, route, HTTPRoute)
    if obj is None:
        return ()
    found = []
    for rule in obj.spec.rules:
        not_served = unsupported(rule)
        backends = () if not_served else _backends(g, route, gateway, rule)
        found += [Route(_match(m), backends, route.path) for m in rule.matches if m.path.type in ("Exact", "PathPrefix")]
    return tuple(found)


def _backends(g: Graph, route: Key, gateway: Key, rule: HTTPRouteRule) -> tuple[Backend, ...]:
    found = []
    for ref in rule.backend_refs:
        if ref.weight:
            to = target(g, route, ref)
            hop = Hop(gateway, to.service, to.port, Protocol.AUTO) if isinstance(to, Target) else None
            found.append(Backend(ref.weight, hop))
    return tuple(found)


def _match(match: HTTPRouteMatch) -> Match:
    exact = match.path.type == "Exact"
    path = match.path.value if exact else match.path.value.rstrip("/") or "/"
    # Of several entries with an equal header name only the first counts (the spec).
    headers = {h.name.lower(): h.value for h in reversed(match.headers)}
    query = {q.name: q.value for q in reversed(match.query_params)}
    return Match(
        path,
        exact,
        tuple(sorted(ValueMatch(n, v) for n, v in headers.items())),
        tuple(sorted(ValueMatch(n, v) for n, v in query.items())),
        match.method,
    )
