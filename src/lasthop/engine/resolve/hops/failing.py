"""Failing hops, reported on each route that uses them.

Some users see only statuses in a cluster, so READY of a route must follow from the route's own conditions.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Refused
from lasthop.engine.plan.upstream import EndpointsKind, Hop, Protocol
from lasthop.engine.plan.verdict import Weakening
from lasthop.engine.resolve.backends.backends import endpoints, missing_endpoints
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import failed_to_connect, port_states
from lasthop.engine.resolve.hops.weakening import weakening
from lasthop.engine.store.graph import Graph, query


class HopTrouble(msgspec.Struct, frozen=True):
    """The problems of a hop that its routes report."""

    failure: Problem | None = None
    """Why connections fail; None also for refused hops, which a route reports by other conditions."""
    culprit: Key | None = None
    """The object at fault: a policy, an XBackend or a Service."""
    weakening: Weakening | None = None
    """The weakening of the backend's verification."""


NO_TROUBLE: Final = HopTrouble()


@query
def hop_trouble(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> HopTrouble:
    hop = Hop(gateway, backend, port, protocol)
    failure, culprit = _failure(g, hop, hop_tls(g, *hop))
    weaker = weakening(g, hop)
    return HopTrouble(failure, culprit, weaker) if culprit or weaker else NO_TROUBLE


def failing_plaintext(g: Graph, hop: Hop) -> Problem | None:
    """Returns why connections on a plaintext hop fail, for a finding. XBackends, hops with a policy and ports without
    endpoints have separate findings."""
    if hop.backend.kind == XBACKEND:
        return None
    problem = _observed(g, hop)
    return problem if problem and not missing_endpoints(g, hop.backend, hop.port, hop.protocol.transport) else None


def _observed(g: Graph, hop: Hop) -> Problem | None:
    return next((state.problem for state in port_states(g, [hop]) if state.health.bad), None)


def _failure(g: Graph, hop: Hop, tls: HopTLS) -> tuple[Problem | None, Key | None]:
    """Returns why connections on a hop fail, and the object at fault. Refused hops have only an object at fault."""
    if isinstance(tls, Refused):
        return None, tls.source
    if problem := _without_endpoints(g, hop):
        return problem, hop.backend
    problem = _observed(g, hop)
    return (problem, _decides(hop, tls)) if problem else (None, None)


def _without_endpoints(g: Graph, hop: Hop) -> Problem | None:
    backend_endpoints = endpoints(g, hop.backend, hop.port, hop.protocol.transport)
    if backend_endpoints.kind is EndpointsKind.DNS or backend_endpoints.endpoints:
        return None
    return Problem(reasons.NO_ENDPOINTS, f"{hop.backend}:{hop.port}: no ready endpoint", about=(hop.backend,))


def _decides(hop: Hop, tls: HopTLS) -> Key:
    """Returns the object that decides the connection of a hop. The finding is reported on it."""
    return (tls.source if isinstance(tls, BackendTLS) else None) or hop.backend


def unconnected(problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route at one Gateway; empty unless one of its hops fails."""
    return (failed_to_connect(tuple(dict.fromkeys(problems))),) if problems else ()
