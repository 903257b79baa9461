"""Ports of Services without a policy that connections fail to. No policy can say so, so the routes that lead there do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.backends.endpoint_slices import missing_endpoints
from lasthop.engine.resolve.backends.reach import AFFECTED_ROUTES, HOPS
from lasthop.engine.resolve.hops.observed import failed_to_connect, port_states
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry

MAX_ROUTES: Final = 100
"""Routes of one hop that say so: when a backend that thousands of routes share fails, few statuses are written."""


def failing_plaintext(g: Graph, hop: Hop) -> Problem | None:
    """Returns why connections on a hop in plaintext fail. An XBackend has a condition of its own, as what has a policy has,
    and a port without endpoints a finding."""
    if hop.backend.kind == XBACKEND:
        return None
    problem = next((state.problem for state in port_states(g, [hop]) if state.health.bad), None)
    return problem if problem and not missing_endpoints(g, hop.backend, hop.port, hop.protocol.transport) else None


def failing_routes(g: Graph, hop: Hop) -> Iterator[Entry]:
    """Yields the routes that lead over a hop in plaintext, if it fails."""
    if problem := failing_plaintext(g, hop):
        for route in HOPS.of(g, *hop)[:MAX_ROUTES]:
            yield AFFECTED_ROUTES.entry((route, hop.gateway), problem)


def unconnected(problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route at one Gateway; none while nothing fails that has no condition elsewhere."""
    return (failed_to_connect(tuple(dict.fromkeys(problems))),) if problems else ()
