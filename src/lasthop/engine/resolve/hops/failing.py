"""Hops that carry no traffic, and the routes that lead over them: each such route has a condition of its own that says so.

A status in a cluster is all that some readers see, so READY of a route has to follow from the route's own conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.routes import BackendObjectReference, Route
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Refused
from lasthop.engine.plan.upstream import EndpointsKind, Hop
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.backends.missing_endpoints import missing_endpoints
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.hops.observed import failed_to_connect, port_states
from lasthop.engine.resolve.routing.route_references import references
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.store import OBJECTS

FAILING_ROUTES = Index[Key, Key, Problem]("failing-route")
"""By route and Gateway: why connections to its backends fail."""


class Culprit(NamedTuple):
    key: Key
    """A policy, an XBackend or a Service."""
    refused: bool
    """The hop is not used at all; otherwise connections fail."""


CULPRITS = Index[Key, Key, Culprit]("culprit")
"""By route and Gateway: for what hops of the route are refused or fail."""


def failing_plaintext(g: Graph, hop: Hop) -> Problem | None:
    """Returns why connections on a hop in plaintext fail, for a finding. An XBackend has a finding of its own, as what has a
    policy has, and so has a port without endpoints."""
    if hop.backend.kind == XBACKEND:
        return None
    problem = _observed(g, hop)
    return problem if problem and not missing_endpoints(g, hop.backend, hop.port, hop.protocol.transport) else None


def _observed(g: Graph, hop: Hop) -> Problem | None:
    return next((state.problem for state in port_states(g, [hop]) if state.health.bad), None)


def failing_routes(g: Graph, hop: Hop, tls: HopTLS) -> Iterator[Entry]:
    """Yields the routes that lead over a hop, if it is refused or fails."""
    if isinstance(tls, Refused):
        # The routes' other conditions say why.
        problem, culprit = None, tls.source
    else:
        problem = _without_endpoints(g, hop)
        culprit = hop.backend if problem else _decides(hop, tls)
        problem = problem or _observed(g, hop)
        if problem is None:
            return
    for route in HOPS.of(g, *hop):
        if not _sends(g, route, hop):
            continue
        if problem:
            yield FAILING_ROUTES.entry((route, hop.gateway), problem)
        if culprit:
            yield CULPRITS.entry((route, hop.gateway), Culprit(culprit, problem is None))


def _sends(g: Graph, route: Key, hop: Hop) -> bool:
    """Returns whether a route sends anything over one of its hops: a backendRef of weight 0 gets nothing. A listener and a
    telemetry policy, which have no rules, do."""
    obj = OBJECTS.of(g, route) if route.kind in ROUTE_KINDS else None
    rules = cast("Route", obj).spec.rules if obj else ()
    found = [each.ref for rule in rules for each in references(rule) if _names(route, each.ref, hop)]
    return not found or any(getattr(ref, "weight", 1) for ref in found)


def _names(route: Key, ref: BackendObjectReference, hop: Hop) -> bool:
    named = Key(ref.kind, ref.namespace or route.namespace, ref.name)
    return named == hop.backend and ref.port in (hop.port, None)


def _without_endpoints(g: Graph, hop: Hop) -> Problem | None:
    found = endpoints(g, hop.backend, hop.port, hop.protocol.transport)
    if found.kind is EndpointsKind.DNS or found.endpoints:
        return None
    return Problem(reasons.NO_ENDPOINTS, f"{hop.backend}:{hop.port}: no ready endpoint", about=(hop.backend,))


def _decides(hop: Hop, tls: HopTLS) -> Key:
    """Returns the object that decides how a hop is connected, which has the finding if it fails."""
    return (tls.source if isinstance(tls, BackendTLS) else None) or hop.backend


def unconnected(problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route at one Gateway; none while no hop of it is known to fail."""
    return (failed_to_connect(tuple(dict.fromkeys(problems))),) if problems else ()
