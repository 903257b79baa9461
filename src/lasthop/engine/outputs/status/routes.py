"""Statuses of routes: one entry per parentRef to a Gateway of this controller or one of its ListenerSets."""

from __future__ import annotations

import functools

from msgspec.structs import replace

from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.routes import ParentReference
from lasthop.base.api.status import ParentStatus, RouteStatus
from lasthop.engine.outputs.envoy.encoded_routes import unserved
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import joined
from lasthop.engine.plan.routing import Parent
from lasthop.engine.resolve.gateways.gateways import without_effect
from lasthop.engine.resolve.gateways.listener_sets import route_parent
from lasthop.engine.resolve.gateways.ports import port_problem, serves_nothing
from lasthop.engine.resolve.hops.failing import hop_trouble, unconnected
from lasthop.engine.resolve.hops.weakening import weakened
from lasthop.engine.resolve.routing.attachment import parents, route_hops
from lasthop.engine.resolve.routing.budgets import verdict_at
from lasthop.engine.resolve.routing.routes import PROTOCOLS, RouteVerdict, read_route
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output

REFUSAL = {"HTTPRoute": "500", "GRPCRoute": "UNAVAILABLE"}
"""The response of a refused rule."""


@query
def route_status(g: Graph, key: Key) -> RouteStatus | None:
    obj = read_route(g, key)
    if obj is None:
        return None
    entries = []
    for parent in parents(g, key):
        ref = _reference(parent.owner, parent.section_name, parent.port)
        message = without_effect("useDefaultGateways", obj.spec.use_default_gateways)
        judged = verdict_at(g, key, parent)
        if key.kind in PROTOCOLS:
            problems, whole = unserved(g, key, parent.gateway, parent.hosts)
            if problems:
                judged = replace(judged, refused=(*problems, *judged.refused), all_refused=judged.all_refused or whole)
        served: tuple[Condition, ...] = ()
        if parent.problem is None:
            served = (*unserved_at(g, parent), *_troubled(g, key, parent))
        conditions = (*_conditions(key.kind, parent, judged, message), *served)
        entries.append(ParentStatus(ref, CONTROLLER_NAME, stated(conditions, obj)))
    return RouteStatus(tuple(entries)) if entries else None


def unserved_at(g: Graph, parent: Parent) -> tuple[Condition, ...]:
    """Returns why clients cannot reach a route on some or all ports of a Gateway. It is a separate condition because
    `Accepted` describes the route; it is absent otherwise."""
    owner = route_parent(g, parent.owner)
    ports = {
        (listener.port, listener.transport)
        for listener in (owner.listeners if owner else ())
        if listener.name in parent.listeners
    }
    problems = [port_problem(g, parent.gateway, *port) for port in sorted(ports)]
    blocked = [problem for problem in problems if problem and problem.reason != reasons.PENDING]
    problem = joined(blocked).within(str(parent.gateway), parent.gateway) if blocked else serves_nothing(g, parent.gateway)
    return (failed(reasons.PROGRAMMED, problem.with_reason(reasons.PARENT_NOT_PROGRAMMED)),) if problem else ()


def _troubled(g: Graph, key: Key, parent: Parent) -> tuple[Condition, ...]:
    weaker, failing = [], []
    for hop, used in route_hops(g, key, parent):
        trouble = hop_trouble.attempt(g, *hop)
        if isinstance(trouble, Crash):
            continue  # a crash has a separate finding
        weaker += [trouble.weakening] if trouble.weakening else []
        failing += [trouble.failure] if trouble.failure and used else []
    return (*weakened(tuple(weaker)), *unconnected(tuple(failing)))


@functools.lru_cache(maxsize=1024)
def _reference(owner: Key, section_name: str, port: int) -> ParentReference:
    """Returns the parentRef of a status. The cache shares it among the routes of a Gateway."""
    return ParentReference(owner.name, kind=owner.kind, namespace=owner.namespace, section_name=section_name, port=port)


def _conditions(kind: str, parent: Parent, judged: RouteVerdict, message: str) -> tuple[Condition, ...]:
    accepted = _accepted(parent, judged, message)
    conditions = [accepted, _resolved(judged)]
    problems = (*judged.left_out, *judged.refused)
    if problems and accepted.status:
        # The spec requires the prefix "Dropped Rule".
        answer = f", so that it returns {REFUSAL[kind]}" if judged.refused and kind in REFUSAL else ""
        conditions.append(failed(reasons.PARTIALLY_INVALID, joined(problems, fields=True).within(f"Dropped Rule{answer}")))
    return tuple(conditions)


def _accepted(parent: Parent, judged: RouteVerdict, message: str) -> Condition:
    if parent.problem:
        return failed(reasons.ACCEPTED, parent.problem)
    if judged.all_refused:
        return failed(reasons.ACCEPTED, joined((*judged.left_out, *judged.refused), fields=True))
    return true(reasons.ACCEPTED, message)


def _resolved(judged: RouteVerdict) -> Condition:
    if not judged.refs:
        return true(reasons.RESOLVED_REFS)
    return failed(reasons.RESOLVED_REFS, joined(judged.refs, fields=True))


ROUTE_STATUS = tuple(Output(f"status-{kind}", kind, route_status) for kind in ROUTE_KINDS)
