"""Streams: the route that takes a listener's connections or datagrams, and its backends."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.base.api.routes import StreamRoute
from lasthop.engine.plan.routing import Stream, WeightedBackend
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.gateways.listeners import table_listener
from lasthop.engine.resolve.routing.attachment import LISTENER_STREAMS, stream_protocol
from lasthop.engine.resolve.routing.routes import hop_to, route_judgement
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import OBJECTS, read


@query
def owner(g: Graph, gateway: Key, table: str, hostname: str) -> Key | None:
    """Returns the route of a connection. Of several attached routes, the one with the most specific hostname takes it, then
    the oldest, then the first by {namespace}/{name}."""
    ranked = [entry for entry in LISTENER_STREAMS.of(g, gateway, table, hostname) if entry]
    return min(ranked)[1] if ranked else None


@query
def stream(g: Graph, gateway: Key, table: str, hostname: str) -> Stream:
    route, listener = owner(g, gateway, table, hostname), table_listener(g, gateway, table)
    if route is None or listener is None or OBJECTS.of(g, route) is None:
        return Stream(hostname)
    return Stream(hostname, str(route), stream_backends(g, route, gateway, stream_protocol(listener)))


@query
def stream_backends(g: Graph, route: Key, gateway: Key, protocol: Protocol) -> tuple[WeightedBackend, ...]:
    obj = read(g, route, StreamRoute)
    usable = obj is not None and obj.spec.rules and not route_judgement(g, route, gateway).rules[0].problems
    refs = obj.spec.rules[0].backend_refs if obj and usable else ()
    return tuple(WeightedBackend(ref.weight, hop_to(g, route, gateway, ref, protocol)) for ref in refs if ref.weight)
