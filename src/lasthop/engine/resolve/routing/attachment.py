"""Attaches routes to listeners: decides which listeners serve a route, and under which hostnames.

route ──> (route table, hostname) ──> virtual hosts, streams
      ──> listener                ──> attachedRoutes
      ──> hops                    ──> clusters, and the reach of policies
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from lasthop.base.api.gateway import GROUP
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.routes import ParentReference, Route
from lasthop.engine.plan import reasons
from lasthop.engine.plan.listener import ListenerPlan, RouteParent
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.routing import ExternalAuth, Parent
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import HOPS, REFUSED
from lasthop.engine.resolve.gateways.allowed_listeners import allows_namespace
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.listener_sets import route_parent
from lasthop.engine.resolve.gateways.listeners import listeners, spec_listeners, table_listener
from lasthop.engine.resolve.routing.budgets import VIRTUAL_HOSTS, RouteCost
from lasthop.engine.resolve.routing.hostnames import intersection, most_specific, specificity
from lasthop.engine.resolve.routing.http_syntax import is_hostname, shown
from lasthop.engine.resolve.routing.routes import (
    PROTOCOLS,
    RouteTargets,
    needs_separate_upgrades,
    read_route,
    route_judgement,
    targets,
)
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer

T = TypeVar("T")
PARENT_KINDS = ((GROUP, "Gateway"), (GROUP, "ListenerSet"))
LISTENERS_SHOWN = 3
"""Limit of listeners that a message names."""
_HTTP_PROTOCOLS = {kind: (protocol,) for kind, protocol in PROTOCOLS.items()}


def parent_key(route: Key, ref: ParentReference) -> Key:
    return Key(ref.kind, ref.namespace or route.namespace, ref.name)


@query
def parents(g: Graph, route: Key) -> tuple[Parent, ...]:
    """Returns the result of each parentRef that names a Gateway of ours or one of its ListenerSets. We write no status for
    other parents, nor for Services (mesh)."""
    obj = read_route(g, route)
    if obj is None:
        return ()
    results = []
    for ref in obj.spec.parent_refs:
        if (ref.group, ref.kind) not in PARENT_KINDS:
            continue
        owner = route_parent(g, parent_key(route, ref))
        if owner is not None:
            results.append(_attach(g, route, obj, ref, owner))
    return tuple(dict.fromkeys(results)) if len(results) > 1 else tuple(results)


def _attach(g: Graph, route: Key, obj: Route, ref: ParentReference, owner: RouteParent) -> Parent:
    def refused(problem: Problem) -> Parent:
        over = protocols(route, ())
        return Parent(owner.key, owner.gateway, ref.section_name, ref.port, problem=problem, protocols=over)

    if owner.problem:
        where = f"{owner.key} is not attached to its Gateway"
        return refused(owner.problem.within(where, owner.key, reason=reasons.NO_MATCHING_PARENT))
    matching = [
        listener for listener in owner.listeners if ref.section_name in ("", listener.name) and ref.port in (0, listener.port)
    ]
    if not matching:
        requested = " and ".join(w for w in (ref.section_name, f"port {ref.port}" if ref.port else "") if w)
        existing = ", ".join(f"{listener.name} ({listener.port})" for listener in owner.listeners)
        return refused(
            Problem(reasons.NO_MATCHING_PARENT, f"the {owner.key.kind} has no listener {requested}; it has {existing}")
        )
    allowed = [listener for listener in matching if _allows(g, listener, route)]
    if not allowed:
        return refused(_not_allowed(route, owner, matching))
    if invalid := [h for h in obj.spec.hostnames if not is_hostname(h, wildcard=True)]:
        # Envoy would refuse the whole route table, and to ignore the hostname would widen the route to all hostnames.
        return refused(unsupported_value(f"hostnames: {shown(invalid[0])} is not a hostname", remedy="correct it"))
    hostnames = tuple(h.lower() for h in obj.spec.hostnames) or ("",)
    pairs = [
        (listener, shared)
        for listener in allowed
        for h in hostnames
        if (shared := intersection(listener.hostname, h)) is not None
    ]
    if not pairs:
        existing = ", ".join(listener.hostname for listener in allowed)
        message = f"no listener hostname matches {', '.join(hostnames)}; listeners have {existing}"
        return refused(Problem(reasons.NO_MATCHING_LISTENER_HOSTNAME, message))
    hosts = {(listener.table, shared) for listener, shared in pairs if _serves(g, owner.gateway, listener, shared)}
    names = dict.fromkeys(listener.name for listener, _ in pairs)
    over = protocols(route, tuple(listener for listener, _ in pairs))
    return Parent(owner.key, owner.gateway, ref.section_name, ref.port, tuple(names), tuple(sorted(hosts)), over)


def _not_allowed(route: Key, owner: RouteParent, matching: Sequence[ListenerPlan]) -> Problem:
    message = f"no listener allows {route.kind}s from namespace {route.namespace}"
    remedy = f"see allowedRoutes of the {owner.key.kind}"
    if not any(route.kind in listener.supported_kinds for listener in matching):
        existing = "; ".join(
            f"{listener.name} has protocol {listener.protocol}{', passthrough' if listener.passthrough else ''}"
            for listener in matching[:LISTENERS_SHOWN]
        )
        message = f"no listener takes {route.kind}s ({existing}{'; ...' if len(matching) > LISTENERS_SHOWN else ''})"
        remedy = f"see protocol and allowedRoutes.kinds of the {owner.key.kind}'s listeners"
    return Problem(reasons.NOT_ALLOWED_BY_LISTENERS, message, remedy=remedy)


def stream_protocol(listener: ListenerPlan) -> Protocol:
    """Returns the protocol to the backends of a stream route, which the listener decides."""
    if listener.transport == "UDP":
        return Protocol.UDP
    return Protocol.PASSTHROUGH if listener.passthrough else Protocol.TCP


def protocols(route: Key, listeners: tuple[ListenerPlan, ...]) -> tuple[Protocol, ...]:
    """Returns the protocols to a route's backends at these listeners; without listeners, the most demanding one."""
    if fixed := _HTTP_PROTOCOLS.get(route.kind):
        return fixed
    over = {stream_protocol(listener) for listener in listeners}
    return tuple(p for p in Protocol if p in over) or ((Protocol.UDP if route.kind == "UDPRoute" else Protocol.TCP),)


def _allows(g: Graph, listener: ListenerPlan, route: Key) -> bool:
    spec = next((x for x in spec_listeners(g, listener.owner) if x.name == listener.name), None)
    if spec is None or route.kind not in listener.supported_kinds:
        return False
    return allows_namespace(g, listener.owner, spec.allowed_routes.namespaces, route.namespace)


def _serves(g: Graph, gateway: Key, listener: ListenerPlan, hostname: str) -> bool:
    """Returns whether a listener serves a hostname that it shares with a route. A more specific listener on the same port may
    own the hostname (listener isolation), even one of another object."""
    if not listener.served:
        return False
    return most_specific(served_hostnames(g, gateway, listener.port, listener.transport), hostname) == listener.hostname


@query
def served_hostnames(g: Graph, gateway: Key, port: int, transport: str) -> frozenset[str]:
    """Returns the hostnames of all listeners of a port."""
    port_listeners = (
        x for x in listeners(g, gateway) if (x.port, x.transport) == (port, transport) and (x.served or x.closed)
    )
    return frozenset(listener.hostname for listener in port_listeners)


def route_hostname(g: Graph, route: Key, hostname: str) -> str:
    """Returns the route's own hostname that produced a virtual host or stream: the most specific one that covers it."""
    obj = read_route(g, route)
    return _own_hostname(obj, hostname) if obj else ""


def _own_hostname(obj: Route, hostname: str) -> str:
    return most_specific([h.lower() for h in obj.spec.hostnames], hostname) or ""


class Rank(NamedTuple):
    """The criteria of precedence besides the matches."""

    hostname: tuple[int, int]
    """The specificity of the route's own hostname."""
    age: tuple[str, str]
    """The creation time, then {namespace}/{name}."""


ATTACHED = Index[Key, str, Key]("attached")
"""Routes by Gateway or ListenerSet and listener."""
TABLES = Index[Key, str, bool]("table")
"""Route tables by Gateway and name."""
LISTENER_STREAMS = Index[Key, str, str, tuple[Rank, Key] | None]("stream")
"""(rank, route) by Gateway, the listener's table, and hostname; None for the listener itself."""


LISTENER_AUTH = Index[Key, str, str, tuple[ExternalAuth, ...]]("asking")
"""The ExternalAuth servers of a listener, in their order, by Gateway, table and hostname."""


@indexer(*ROUTE_KINDS, keep_on_crash=True)
def index_routes(g: Graph, route: Key) -> Iterator[Entry]:
    for parent in parents(g, route):
        judged = route_judgement.attempt(g, route, parent.gateway)
        for listener in () if isinstance(judged, Crash) or judged.all_refused else parent.listeners:
            yield ATTACHED.entry((parent.owner, listener), route)
        for table, hostname in parent.hosts:
            at = (parent.gateway, table, hostname)
            if route.kind not in PROTOCOLS:
                if ranked := rank(g, route, hostname):
                    yield LISTENER_STREAMS.entry(at, (ranked, route))
            elif isinstance(judged, Crash):
                yield VIRTUAL_HOSTS.entry(at, RouteCost(route))
            else:
                yield VIRTUAL_HOSTS.entry(at, RouteCost(route, judged.matches, judged.regex_size))
        if parent.problem is None:
            # A route whose rules crash keeps its hostnames but has no hops.
            route_targets = g.shielded(targets, route, parent.gateway)
            if isinstance(route_targets, Crash):
                continue
            for refused in route_targets.refused:
                yield REFUSED.entry((parent.gateway, refused.backend, refused.port), route)
            yield from (HOPS.entry(route_hop.hop, route) for route_hop in _hops(g, parent, route_targets))


class RouteHop(NamedTuple):
    hop: Hop
    used: bool
    """Whether any traffic uses it."""


def route_hops(g: Graph, route: Key, parent: Parent) -> list[RouteHop]:
    """Returns the hops of a route at a parent that accepts it, in order."""
    return sorted(_hops(g, parent, targets(g, route, parent.gateway)))


def _hops(g: Graph, parent: Parent, route_targets: RouteTargets) -> Iterator[RouteHop]:
    for target, required in route_targets.permitted:
        for protocol in (required,) if required else parent.protocols:
            hop, used = Hop(parent.gateway, target.backend, target.port, protocol), target in route_targets.used
            yield RouteHop(hop, used)
            if needs_separate_upgrades(g, hop):
                yield RouteHop(hop._replace(protocol=Protocol.H1_UPGRADE), used)


def rank(g: Graph, route: Key, hostname: str) -> Rank | None:
    obj = read_route(g, route)
    return rank_of(obj, hostname) if obj else None


def rank_of(obj: Route, hostname: str) -> Rank:
    return Rank(specificity(_own_hostname(obj, hostname)), obj.age)


def in_order(routes: Iterable[tuple[Rank, Sequence[tuple[tuple[int, ...], T]]]]) -> list[T]:
    """Returns the matches of several routes in the spec's order: the route's own hostname, then the match, then the older
    route, then {namespace}/{name}, then its own order."""
    ranked = [
        (rank.hostname, precedence, rank.age, number, match)
        for rank, matches in routes
        for number, (precedence, match) in enumerate(matches)
    ]
    ranked.sort(key=lambda entry: entry[:4])
    return [match for *_, match in ranked]


@query
def has_listener_auth(g: Graph, gateway: Key, table: str) -> bool:
    """Returns whether a listener of a route table has ExternalAuth servers. Most have none."""
    return any(listener.auth for listener in listeners(g, gateway) if listener.table == table)


def listener_auth(g: Graph, gateway: Key, table: str, hostname: str) -> tuple[ExternalAuth, ...]:
    """Returns the ExternalAuth servers of the listener for every request of a virtual host."""
    return _listener_auth(g, gateway, table, hostname) if has_listener_auth(g, gateway, table) else ()


@query
def _listener_auth(g: Graph, gateway: Key, table: str, hostname: str) -> tuple[ExternalAuth, ...]:
    """Returns the servers of the listener that owns the hostname, without those of other listeners of the port."""
    listener = table_listener(g, gateway, table)
    if listener is None:
        return ()
    hostnames = served_hostnames(g, gateway, listener.port, listener.transport)
    owner = listener.hostname if listener.protocol == "HTTPS" else most_specific(hostnames, hostname)
    return () if owner is None else next(iter(LISTENER_AUTH.of(g, gateway, table, owner)), ())


@indexer("Gateway", "ListenerSet", keep_on_crash=True)
def index_listener_hops(g: Graph, owner: Key) -> Iterator[Entry]:
    """Indexes the hops to the ExternalAuth servers of listeners, under the Gateway or ListenerSet."""
    parent = route_parent(g, owner)
    for listener in parent.listeners if parent and not parent.problem else ():
        for auth in listener.auth if listener.served else ():
            yield HOPS.entry((auth.hop.gateway, auth.hop.backend, auth.hop.port, auth.hop.protocol), owner)


MISDIRECTED = "!misdirected"
"""A key in place of a hostname: its one entry lists the hostnames of the port's other listeners, which may be a thousand."""


@indexer("Gateway", keep_on_crash=True)
def index_tables(g: Graph, key: Key) -> Iterator[Entry]:
    owner = gateway(g, key)
    if owner is None or not owner.accepted.status:
        return
    served = [listener for listener in owner.listeners if listener.served]
    tables = {listener.table for listener in served if listener.http}
    for table in tables:
        yield TABLES.entry((key, table), True)
    for listener in served:
        # A listener's hostname is a virtual host even without routes, so that its requests never go to a less specific
        # listener. The same holds for connections, which are closed.
        at = (key, listener.table, listener.hostname)
        if not listener.http:
            yield LISTENER_STREAMS.entry(at, None)
        elif listener.hostname or listener.auth:
            yield VIRTUAL_HOSTS.entry(at, None)
        if listener.auth:
            yield LISTENER_AUTH.entry(at, listener.auth)
        # On a connection that was opened for one HTTPS listener, the names of the others are misdirected (RFC 9110 15.5.20).
        if listener.protocol == "HTTPS":
            names = served_hostnames(g, key, listener.port, "TCP")
            yield VIRTUAL_HOSTS.entry((key, listener.table, MISDIRECTED), names)
    open_ports = {(listener.port, listener.transport) for listener in served}
    for listener in owner.listeners:
        if listener.closed and listener.hostname and (listener.port, listener.transport) in open_ports:
            # A closed listener keeps its hostname: requests for it get 404, connections are closed. HTTPS has a closed filter
            # chain.
            at = (key, listener.table, listener.hostname)
            if listener.protocol == "TLS":
                yield LISTENER_STREAMS.entry(at, None)
            elif listener.table in tables:
                yield VIRTUAL_HOSTS.entry(at, None)


def misdirected(g: Graph, gateway: Key, table: str) -> frozenset[str]:
    """Returns the hostnames of other listeners of the port."""
    listener = table_listener(g, gateway, table)
    names = next((entry for entry in VIRTUAL_HOSTS.of(g, gateway, table, MISDIRECTED) if isinstance(entry, frozenset)), None)
    return names - {listener.hostname} if names and listener else frozenset()
