"""Why something is not served by this controller: its Gateway, or the class of that, is missing or another's."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.gateway import Gateway, GatewayClass, ListenerSet
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.api.routes import ParentReference
from lasthop.resolve.allowed_listeners import parent_gateway
from lasthop.resolve.attachment import PARENT_KINDS
from lasthop.resolve.listener_sets import holder
from lasthop.resolve.routes import read_route
from lasthop.store.graph import Graph
from lasthop.store.store import read


def not_ours(g: Graph, key: Key) -> str:
    """Why a Gateway or ListenerSet is not served by this controller, as the end of a sentence about it."""
    if key.kind == "ListenerSet":
        if read(g, key, ListenerSet) is None:
            return "does not exist"
        parent = parent_gateway(g, key)
        return f"is of {parent}, which {not_ours(g, parent)}" if parent else "has a parentRef that does not name a Gateway"
    obj = read(g, key, Gateway)
    if obj is None:
        return "does not exist"
    name = obj.spec.gateway_class_name
    of_class = read(g, Key("GatewayClass", "", name), GatewayClass)
    if of_class is None:
        return f"has GatewayClass {name}, which does not exist"
    return f"has GatewayClass {name}, which belongs to {of_class.spec.controller_name}, not to {CONTROLLER_NAME}"


def parent_of(route: Key, ref: ParentReference) -> Key:
    """The object that a parentRef names."""
    return Key(ref.kind, ref.namespace or route.namespace, ref.name)


def is_ours(g: Graph, route: Key, ref: ParentReference) -> bool:
    return (ref.group, ref.kind) in PARENT_KINDS and holder(g, parent_of(route, ref)) is not None


def strange_parents(g: Graph, route: Key) -> Iterator[tuple[int, Key]]:
    """The Gateways and ListenerSets that a route names and that this controller does not serve, by their number."""
    obj = read_route(g, route)
    for number, ref in enumerate(obj.spec.parent_refs if obj else ()):
        if (ref.group, ref.kind) in PARENT_KINDS and not is_ours(g, route, ref):
            yield number, parent_of(route, ref)
