"""Findings on Gateways, ListenerSets and routes that this controller does not serve, because of their references.

In a cluster, another controller may serve them, so only warnings are given. In a folder, no other controller exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from lasthop.base.api.gateway import Gateway, GatewayClass
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.gateways.ours import not_ours, unserved_parents
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read

ROUTE = "no parentRef names a Gateway of this controller or one of its ListenerSets; the route has no effect"
LISTENER_SET = "its parentRef names no Gateway of this controller; the ListenerSet has no effect"


@query
def class_finding(g: Graph, key: Key) -> Finding | None:
    """Reports a Gateway whose class does not exist or belongs to another controller."""
    obj = read(g, key, Gateway)
    if obj is None:
        return None
    name = obj.spec.gateway_class_name
    of_class = read(g, Key("GatewayClass", "", name), GatewayClass)
    if of_class is not None and of_class.spec.controller_name == CONTROLLER_NAME:
        return None
    why, field = not_ours(g, key, "it is not served: it"), "spec.gatewayClassName"
    remedy = f"{'Create it, with' if of_class is None else 'Give the class'} spec.controllerName {CONTROLLER_NAME}."
    return make_finding(key, reasons.NO_GATEWAY_CLASS, f"{why.text}.", remedy, field, about=why.about, missing=why.missing)


@query
def class_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    finding = None if settings(g).pods else class_finding(g, key)
    return (finding,) if finding else ()


def unattached(g: Graph, route: Key, *, served: bool) -> Iterator[Finding]:
    """Reports parents of a route that this controller does not serve. With `served`, it serves another parent."""
    foreign = list(unserved_parents(g, route))
    if settings(g).pods or not foreign:
        if not served:
            yield make_finding(route, reasons.NO_MATCHING_PARENT, ROUTE, severity=Severity.WARNING)
        return
    for number, parent in foreign:
        yield _sentence(not_ours(g, parent, f"it has no effect there: {parent}")).at(f"spec.parentRefs[{number}]").on(route)


def unserved_set(g: Graph, listener_set: Key) -> Finding:
    """Reports a ListenerSet whose Gateway this controller does not serve."""
    if settings(g).pods:
        return make_finding(
            listener_set, reasons.NO_MATCHING_PARENT, LISTENER_SET, field="spec.parentRef", severity=Severity.WARNING
        )
    return _sentence(not_ours(g, listener_set, "it has no effect: it")).at("spec.parentRef").on(listener_set)


def _sentence(problem: Problem) -> Problem:
    return replace(problem, message=f"{problem.message}.")


FOREIGN_CLASSES = Output("findings-foreign-gateways", "Gateway", class_findings)
