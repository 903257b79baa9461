"""Reads from a running engine what the picture is drawn from, one member at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.edge.observe.observations import Observations, merged
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import with_figures
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.hops.observed import seen_now
from lasthop.engine.resolve.routing.attachment import parents
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash
from lasthop.web.drawing import ListenerSeen, RouteSeen
from lasthop.web.picture import Line, line


def sighted(g: Graph, observations: Observations, report: HopReport, hops: Iterable[Hop]) -> Line:
    """Returns the line of a hop with what has been seen of it; the protocols of a port are one line."""
    found = {hop: seen_now(g, hop, seen) for hop in hops if (seen := observations.seen(hop))}
    if not found:
        return line(report)
    return line(with_figures(g, report, found), merged(list(found.values())), observations.per_second(*found))


def each_listener(engine: Engine) -> Iterator[ListenerSeen]:
    for key in engine.store.keys("Gateway"):
        found = gateway.attempt(engine.graph, key)
        if found is None or isinstance(found, Crash):
            continue
        for listener in found.listeners:
            yield _listener(engine.graph, key, listener)


def _listener(g: Graph, key: Key, listener: ListenerPlan) -> ListenerSeen:
    pairs = (key_pair.attempt(g, secret) for secret in listener.certificates)
    first = min((pair for pair in pairs if isinstance(pair, KeyPair)), key=lambda pair: pair.not_after, default=None)
    return ListenerSeen(
        listener_id(listener.owner, listener.name),
        key.path,
        listener.name,
        listener.port,
        listener.protocol,
        listener.hostname,
        "" if listener.owner == key else listener.owner.path,
        "" if listener.served else _why(condition.problem for condition in listener.conditions),
        first.subject if first else "",
        first.not_after if first else 0.0,
    )


def _why(problems: Iterable[Problem | None]) -> str:
    return next((problem.text for problem in problems if problem), "not served")


def listener_id(owner: Key, name: str) -> str:
    return f"{owner} {name}"


def each_route(engine: Engine, observations: Observations) -> Iterator[RouteSeen]:
    """Yields the routes that name a Gateway of ours."""
    used = observations.routes()
    for kind in ROUTE_KINDS:
        for key in engine.store.keys(kind):
            found = parents.attempt(engine.graph, key)
            if isinstance(found, Crash) or not found:
                continue
            yield RouteSeen(
                key,
                tuple(listener_id(parent.owner, name) for parent in found for name in parent.listeners),
                tuple(dict.fromkeys(parent.gateway.path for parent in found)),
                tuple(dict.fromkeys(host for parent in found for _, host in parent.hosts if host)),
                observations.per_second(key)[0] if key in used else 0.0,
            )
