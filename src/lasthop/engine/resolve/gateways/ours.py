"""Explains why this controller does not serve an object: its Gateway or GatewayClass is missing or belongs to another
controller."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from lasthop.base.api.gateway import Gateway, GatewayClass, ListenerSet
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.base.api.routes import ParentReference
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import DOES_NOT_EXIST, Problem
from lasthop.engine.resolve.gateways.allowed_listeners import parent_gateway
from lasthop.engine.resolve.gateways.listener_sets import route_parent
from lasthop.engine.resolve.routing.attachment import PARENT_KINDS, parent_key
from lasthop.engine.resolve.routing.routes import read_route
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read


def not_ours(g: Graph, key: Key, subject: str = "it") -> Problem:
    """Returns why this controller does not serve a Gateway or ListenerSet. `subject` begins the sentence."""
    if read(g, key, ListenerSet if key.kind == "ListenerSet" else Gateway) is None:
        return _problem(f"{subject} {DOES_NOT_EXIST}", key, missing=(key,))
    if key.kind == "ListenerSet":
        parent = parent_gateway(g, key)
        if parent is None:
            return _problem(f"{subject} has a parentRef that does not name a Gateway", key)
        problem = not_ours(g, parent, f"{subject} belongs to {parent}, which")
        return replace(problem, about=(key, *problem.about))
    obj = read(g, key, Gateway)
    class_key = Key("GatewayClass", "", obj.spec.gateway_class_name if obj else "")
    of_class, subject = read(g, class_key, GatewayClass), f"{subject} has {class_key}, which"
    if of_class is None:
        return _problem(f"{subject} {DOES_NOT_EXIST}", key, class_key, missing=(class_key,))
    return _problem(f"{subject} belongs to {of_class.spec.controller_name}, not to {CONTROLLER_NAME}", key, class_key)


def _problem(message: str, *about: Key, missing: tuple[Key, ...] = ()) -> Problem:
    return Problem(reasons.NO_MATCHING_PARENT, message, about=about, missing=missing)


def is_ours(g: Graph, route: Key, ref: ParentReference) -> bool:
    return (ref.group, ref.kind) in PARENT_KINDS and route_parent(g, parent_key(route, ref)) is not None


def unserved_parents(g: Graph, route: Key) -> Iterator[tuple[int, Key]]:
    """Yields the parentRefs, by number, whose Gateway or ListenerSet this controller does not serve."""
    obj = read_route(g, route)
    for number, ref in enumerate(obj.spec.parent_refs if obj else ()):
        if (ref.group, ref.kind) in PARENT_KINDS and not is_ours(g, route, ref):
            yield number, parent_key(route, ref)
