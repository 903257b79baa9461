"""Ports of Services without a policy that connections fail to. No policy can say so, so the routes that lead there do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.meta import Key
from lasthop.plan.condition import Condition
from lasthop.plan.problem import Problem
from lasthop.plan.tls import Plaintext
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.missing_endpoints import missing_endpoints
from lasthop.resolve.observed import failed_to_connect, port_states
from lasthop.resolve.reach import HOPS
from lasthop.store.graph import Graph, query
from lasthop.store.sources import Entry, Index
from lasthop.store.stages import indexer

MAX_ROUTES: Final = 100
"""Routes of one hop that say so: when a backend that thousands of routes share fails, few statuses are written."""
FAILING_ROUTES = Index[Key, Key, Problem]("failing-route")
"""By route and Gateway: why connections to backends without a policy fail."""


@query
def failing_plaintext(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Problem | None:
    """Returns why connections to a Service port without a policy fail; what has a policy, or is an XBackend, has a condition
    of its own, and a port without endpoints a finding."""
    hop = Hop(gateway, backend, port, protocol)
    if backend.kind == XBACKEND or not isinstance(hop_tls(g, *hop), Plaintext):
        return None
    if missing_endpoints(g, backend, port, protocol.transport):
        return None
    return next((state.problem for state in port_states(g, [hop]) if state.health.bad), None)


@indexer(HOPS, patient=True)
def index_failing(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Iterator[Entry]:
    if problem := failing_plaintext(g, gateway, backend, port, protocol):
        for route in HOPS.of(g, gateway, backend, port, protocol)[:MAX_ROUTES]:
            yield FAILING_ROUTES.entry((route, gateway), problem)


def unconnected(problems: tuple[Problem, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route at one Gateway; none while nothing fails that has no condition elsewhere."""
    return (failed_to_connect(tuple(dict.fromkeys(problems))),) if problems else ()
