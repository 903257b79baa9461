"""Attachment: which listeners a route is served by, and under which hostnames.

route ──> (route table, hostname) buckets ──> virtual hosts, streams
      ──> listener counters               ──> attachedRoutes
      ──> hops                            ──> clusters, and the reach of policies
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lasthop.api import gateway as api
from lasthop.api.gateway import GROUP
from lasthop.api.meta import Key
from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.api.routes import ParentReference, Route
from lasthop.plan import reasons
from lasthop.plan.listener import Gateway, Listener
from lasthop.plan.routing import Parent, RouteProblem
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.gateways import gateway
from lasthop.resolve.hostnames import intersection, most_specific, specificity
from lasthop.resolve.listeners import allows_namespace
from lasthop.resolve.routes import PROTOCOLS, all_refused, read_route, targets
from lasthop.store.graph import Emitter, Graph
from lasthop.store.store import read


def parents(g: Graph, route: Key) -> tuple[Parent, ...]:
    """What became of each parentRef that names a Gateway of ours. Others, and Services (mesh), get no word from us."""
    obj = read_route(g, route)
    if obj is None:
        return ()
    found = []
    for ref in obj.spec.parent_refs:
        if (ref.group, ref.kind) != (GROUP, "Gateway"):
            continue
        key = Key("Gateway", ref.namespace or route.namespace, ref.name)
        owner = g(gateway, key)
        if owner is not None:
            found.append(_attach(g, route, obj, ref, owner))
    return tuple(dict.fromkeys(found))


def _attach(g: Graph, route: Key, obj: Route, ref: ParentReference, owner: Gateway) -> Parent:
    def refused(reason: str, message: str) -> Parent:
        problem = RouteProblem(reason, message)
        return Parent(owner.key, ref.section_name, ref.port, problem=problem, protocols=protocols(route, ()))

    named = [
        listener for listener in owner.listeners if ref.section_name in ("", listener.name) and ref.port in (0, listener.port)
    ]
    if not named:
        wanted = " and ".join(w for w in (ref.section_name, f"port {ref.port}" if ref.port else "") if w)
        have = ", ".join(f"{listener.name} ({listener.port})" for listener in owner.listeners)
        return refused(reasons.NO_MATCHING_PARENT, f"the Gateway has no listener {wanted}; it has {have}")
    allowed = [listener for listener in named if _allows(g, owner, listener, route)]
    if not allowed:
        return refused(
            reasons.NOT_ALLOWED_BY_LISTENERS,
            f"no listener allows {route.kind}s from namespace {route.namespace}; see allowedRoutes of the Gateway",
        )
    hostnames = tuple(h.lower() for h in obj.spec.hostnames) or ("",)
    pairs = [(listener, h) for listener in allowed for h in hostnames if intersection(listener.hostname, h) is not None]
    if not pairs:
        have = ", ".join(listener.hostname for listener in allowed)
        return refused(
            reasons.NO_MATCHING_LISTENER_HOSTNAME,
            f"none of {', '.join(hostnames)} falls under a listener's hostname ({have})",
        )
    hosts = {(listener.table, h) for listener, route_host in pairs for h in _served(owner, listener, route_host)}
    names = dict.fromkeys(listener.name for listener, _ in pairs)
    spoken = protocols(route, tuple(listener for listener, _ in pairs))
    return Parent(owner.key, ref.section_name, ref.port, tuple(names), tuple(sorted(hosts)), spoken)


def stream_protocol(listener: Listener) -> Protocol:
    """What is spoken to the backends of a route of connections or datagrams: the listener decides it."""
    if listener.transport == "UDP":
        return Protocol.UDP
    return Protocol.PASSTHROUGH if listener.passthrough else Protocol.TCP


def protocols(route: Key, listeners: tuple[Listener, ...]) -> tuple[Protocol, ...]:
    """What is spoken to a route's backends where it is attached to these listeners. While there are none, what its backends
    would have to bear at most."""
    if route.kind in PROTOCOLS:
        return PROTOCOLS[route.kind]
    found = {stream_protocol(listener) for listener in listeners}
    return tuple(p for p in Protocol if p in found) or ((Protocol.UDP if route.kind == "UDPRoute" else Protocol.TCP),)


def _allows(g: Graph, owner: Gateway, listener: Listener, route: Key) -> bool:
    obj = read(g, owner.key, api.Gateway)
    spec = next((x for x in obj.spec.listeners if x.name == listener.name), None) if obj else None
    if spec is None or route.kind not in listener.supported_kinds:
        return False
    return allows_namespace(g, owner.key, spec.allowed_routes.namespaces, route.namespace)


def _served(owner: Gateway, listener: Listener, route_hostname: str) -> Iterator[str]:
    """The names under which a route is served by a listener: what both stand for, less what belongs to a more specific
    listener on the same port (listener isolation)."""
    hostname = intersection(listener.hostname, route_hostname)
    if hostname is None or not listener.served:
        return
    place = (listener.port, listener.transport)
    rivals = tuple(x.hostname for x in owner.listeners if (x.port, x.transport) == place and x.served)
    if most_specific(rivals, hostname) == listener.hostname:
        yield hostname


def route_hostname(g: Graph, route: Key, hostname: str) -> str:
    """Which of its own hostnames a route owes a virtual host or a stream to: the most specific one that has all of it."""
    obj = read_route(g, route)
    own = tuple(h.lower() for h in obj.spec.hostnames) if obj else ()
    return most_specific(own, hostname) or ""


def _emit(g: Graph, route: Key) -> tuple[tuple[tuple[Any, ...], Any], ...]:
    emitted: dict[tuple[Any, ...], Any] = {}
    accepted = not g(all_refused, route)
    for parent in g(parents, route):
        for listener in parent.listeners if accepted else ():
            emitted[("attached", parent.gateway, listener)] = True
        for table, hostname in parent.hosts:
            if route.kind in PROTOCOLS:
                emitted[("vhost", parent.gateway, table, hostname)] = True
            else:
                emitted[("stream", parent.gateway, table, hostname)] = _rank(g, route, hostname)
        if parent.problem is None:
            for found in g(targets, route):
                for protocol in parent.protocols:
                    emitted[("hop", *Hop(parent.gateway, found.service, found.port, protocol))] = True
    return tuple(emitted.items())


def _rank(g: Graph, route: Key, hostname: str) -> tuple[tuple[int, int], tuple[str, str]]:
    """The first of several routes that compete for connections has them."""
    obj = read_route(g, route)
    return specificity(g(route_hostname, route, hostname)), obj.age if obj else ("", "")


ATTACHMENTS = tuple(Emitter(f"attachments-{kind}", kind, _emit) for kind in ROUTE_KINDS)


OWN = "own"
MISDIRECTED = "misdirected"


def _emit_tables(g: Graph, key: Key) -> tuple[tuple[tuple[Any, ...], str], ...]:
    owner = g(gateway, key)
    if owner is None or not owner.accepted.status:
        return ()
    served = [listener for listener in owner.listeners if listener.served]
    emitted: dict[tuple[Any, ...], str] = {("table", key, listener.table): "" for listener in served if listener.http}
    for listener in served:
        # A listener's hostname is a virtual host even without routes: what it does not serve must not fall to a wider one.
        # The same goes for connections, which are closed then.
        if not listener.http:
            emitted[("stream", key, listener.table, listener.hostname)] = OWN
            continue
        if listener.hostname:
            emitted[("vhost", key, listener.table, listener.hostname)] = OWN
        # On a connection that was opened for one HTTPS listener, the names of the others are misdirected (RFC 9110 15.5.20).
        for other in served:
            if (other.port, other.transport) == (listener.port, "TCP") and other.table != listener.table:
                emitted[("vhost", key, listener.table, other.hostname)] = MISDIRECTED
    return tuple(emitted.items())


TABLES = Emitter("tables", "Gateway", _emit_tables)
