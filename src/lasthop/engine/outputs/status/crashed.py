"""Statuses of objects whose query crashed: a bug, or unexpected input, closes the object and reports it.

Without a new status, the old one would remain, which may report success.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from lasthop.base.api import status as api
from lasthop.base.api.gateway import GROUP, Gateway, GatewayClass, ListenerSet
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import AncestorReference, BackendTLSPolicy, LocalObjectReference, RejectedPolicy
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.routes import ParentReference
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import failed
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import internal_error
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.allowed_listeners import parent_gateway
from lasthop.engine.resolve.gateways.telemetry import TELEMETRY
from lasthop.engine.resolve.policies.ancestors import MAX_ANCESTORS
from lasthop.engine.resolve.policies.targets import named_services
from lasthop.engine.resolve.routing.attachment import PARENT_KINDS, parent_key
from lasthop.engine.resolve.routing.routes import read_route
from lasthop.engine.store.graph import Graph, Query, query
from lasthop.engine.store.node import Crash, NodeId
from lasthop.engine.store.store import OBJECTS


def or_crashed(status: Query[Key, api.Status | None]) -> Query[Key, api.Status | None]:
    """Returns a query of the same name that replaces a crash by a status. It calls the other as a plain function, so that
    statuses are not cached twice."""

    @query
    @functools.wraps(status.fn)
    def or_crashed_status(g: Graph, key: Key) -> api.Status | None:
        result = g.shielded(status.fn, key)
        return crashed_status(g, key) if isinstance(result, Crash) else result

    return or_crashed_status


def crashed_status(g: Graph, key: Key) -> api.Status | None:
    """Returns the status of a crashed object; None if this controller does not serve it."""
    obj = OBJECTS.of(g, key)
    match obj:
        case GatewayClass():
            ours = obj.spec.controller_name == CONTROLLER_NAME
            return api.GatewayClassStatus(_not_accepted(obj)) if ours else None
        case Gateway():
            return api.GatewayStatus((), _crashed_listeners(obj)) if _ours(g, key) else None
        case ListenerSet():
            parent = parent_gateway(g, key)
            conditions = _crashed_listeners(obj)
            return api.ListenerSetStatus(conditions) if parent and _ours(g, parent) else None
        case BackendTLSPolicy() | RejectedPolicy():
            return _of_backend(g, obj, *named_services(obj))
        case XTelemetryPolicy():
            return _at_gateways(obj, [gateway for gateway in TELEMETRY.targets(key, obj) if _ours(g, gateway)])
        case XBackendTrafficPolicy():
            return _of_backend(g, obj, *TRAFFIC.targets(key, obj))
    route = read_route(g, key) if key.kind in ROUTE_KINDS else None
    if route is not None:
        named = [(ref, parent_key(key, ref)) for ref in route.spec.parent_refs if (ref.group, ref.kind) in PARENT_KINDS]
        entries = [_parent(ref, owner, route) for ref, owner in named if _ours(g, _gateway_of(g, owner))]
        return api.RouteStatus(tuple(dict.fromkeys(entries))) if entries else None
    return _of_backend(g, obj, key) if obj is not None else None


def _not_accepted(obj: Object) -> tuple[api.ConditionStatus, ...]:
    return stated((failed(reasons.ACCEPTED, internal_error()),), obj)


def _crashed_listeners(obj: Object) -> tuple[api.ConditionStatus, ...]:
    return (*_not_accepted(obj), *stated((failed(reasons.PROGRAMMED, internal_error()),), obj))


def _ours(g: Graph, gateway: Key | None) -> bool:
    """Decides without queries that may crash."""
    obj = OBJECTS.of(g, gateway) if gateway else None
    of_class = OBJECTS.of(g, Key("GatewayClass", "", obj.spec.gateway_class_name)) if isinstance(obj, Gateway) else None
    return isinstance(of_class, GatewayClass) and of_class.spec.controller_name == CONTROLLER_NAME


def _gateway_of(g: Graph, owner: Key) -> Key | None:
    return owner if owner.kind == "Gateway" else parent_gateway(g, owner)


def _parent(ref: ParentReference, owner: Key, route: Object) -> api.ParentStatus:
    at = ParentReference(owner.name, kind=owner.kind, namespace=owner.namespace, section_name=ref.section_name, port=ref.port)
    return api.ParentStatus(at, CONTROLLER_NAME, _not_accepted(route))


def _of_backend(g: Graph, obj: Object, *backends: Key) -> api.PolicyStatus | None:
    """Returns an entry for every Gateway whose routes use the backends."""
    return _at_gateways(obj, sorted({hop.gateway for backend in backends for hop in REACH.of(g, backend)}))


def _at_gateways(obj: Object, gateways: Iterable[Key]) -> api.PolicyStatus | None:
    conditions = _not_accepted(obj)
    entries = [
        api.AncestorStatus(AncestorReference(gateway.name, gateway.namespace, GROUP, "Gateway"), CONTROLLER_NAME, conditions)
        for gateway in gateways
    ]
    return api.PolicyStatus(tuple(entries[:MAX_ANCESTORS])) if entries else None


def crash_finding(id: NodeId) -> Finding:
    """Reports a crash on the object of the query; on a Gateway only if the query has no other object."""
    _, *args = id
    about = [key for arg in args for key in _objects(arg)]
    refs = [Key(b.kind, a, b.name) for a, b in pairwise(args) if isinstance(a, str) and isinstance(b, LocalObjectReference)]
    message = f"Lasthop failed in {query_name(id)}, so everything that depends on it fails closed."
    remedy = "Edit the object, and please report this with the error from the log."
    keys = sorted((*about, *refs), key=lambda key: key.kind == "Gateway")
    return make_finding(keys[0] if keys else None, reasons.INTERNAL_ERROR, message, remedy)


def query_name(id: NodeId) -> str:
    """Returns a name such as `resolve.certificates.key_pair(Secret shop/web)`."""
    query, *args = id
    shown = ", ".join(str(arg) for arg in args if isinstance(arg, Key | str | int))
    return f"{query}({shown})"


def _objects(arg: Any) -> list[Key]:
    if isinstance(arg, Key):
        return [arg]
    return [arg.owner] if isinstance(arg, ListenerPlan) else []
