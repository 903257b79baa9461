"""Yields the listeners and routes of Gateways one by one, for the page's picture, and the URLs of a Gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.policies.judgement import validation_of
from lasthop.engine.resolve.routing.attachment import ATTACHED, parents
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash


class ListenerReport(msgspec.Struct, frozen=True):
    id: str
    """For example `Gateway shop/web https`."""
    gateway: str
    name: str
    port: int
    protocol: str
    hostname: str
    set: str = ""
    """The ListenerSet of the listener, if any."""
    problem: str = ""
    """Why the listener is not served."""
    certificate: str = ""
    not_after: float = 0.0
    """Unix time; 0 without a certificate."""


class RouteReport(msgspec.Struct, frozen=True):
    key: Key
    listeners: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    rate: float = 0.0
    """Requests per second, which `web` adds."""

    @property
    def name(self) -> str:
        """For example `HTTPRoute shop/web`."""
        return str(self.key)


def each_listener(g: Graph, gateways: Iterable[Key]) -> Iterator[ListenerReport]:
    for key in gateways:
        plan = gateway.attempt(g, key)
        if plan is not None and not isinstance(plan, Crash):
            yield from (_listener(g, key, listener) for listener in plan.listeners)


def _listener(g: Graph, key: Key, listener: ListenerPlan) -> ListenerReport:
    pairs = (key_pair.attempt(g, secret) for secret in listener.certificates)
    first = min((pair for pair in pairs if isinstance(pair, KeyPair)), key=lambda pair: pair.not_after, default=None)
    problems = (condition.problem.text for condition in listener.conditions if condition.problem)
    return ListenerReport(
        _listener_id(listener.owner, listener.name),
        key.path,
        listener.name,
        listener.port,
        listener.protocol,
        listener.hostname,
        "" if listener.owner == key else listener.owner.path,
        "" if listener.served else next(problems, "not served"),
        first.subject if first else "",
        first.not_after if first else 0.0,
    )


def _listener_id(owner: Key, name: str) -> str:
    return f"{owner} {name}"


def served_ports(g: Graph, gateways: Iterable[Key]) -> set[tuple[str, int, str]]:
    """Returns (address, port, transport) of every served listener."""
    return {
        (address, listener.port, listener.transport)
        for plan in (gateway(g, key) for key in gateways)
        if plan is not None and plan.accepted.status
        for listener in plan.listeners
        if listener.served
        for address in plan.addresses
    }


def each_route(g: Graph, routes: Iterable[Key]) -> Iterator[RouteReport]:
    """Yields the routes of Gateways of this controller."""
    for key in routes:
        attached = parents.attempt(g, key)
        if isinstance(attached, Crash) or not attached:
            continue
        yield RouteReport(
            key,
            tuple(_listener_id(parent.owner, name) for parent in attached for name in parent.listeners),
            tuple(dict.fromkeys(parent.gateway.path for parent in attached)),
            tuple(dict.fromkeys(host for parent in attached for _, host in parent.hosts if host)),
        )


def deciding_objects(g: Graph, report: HopReport) -> list[Key]:
    """Returns the objects that decide the connection of a hop, the most important first, without Secrets."""
    keys = list(report.objects)
    for owner in [key for key in keys if key.kind in ("BackendTLSPolicy", "XBackend")]:
        validation = validation_of(g, owner)
        for ref in validation.ca_certificate_refs if validation else ():
            keys.append(Key(ref.kind, "" if ref.kind == "ClusterTrustBundle" else owner.namespace, ref.name))
    return [key for key in dict.fromkeys((*keys, report.gateway)) if key.kind != "Secret"]


SHOWN: Final = 3
"""Limit of hostnames per listener."""
_SCHEMES: Final = {"HTTP": ("http", 80), "HTTPS": ("https", 443)}
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})


def served_urls(g: Graph, key: Key) -> Iterator[str]:
    """Yields the URLs of a Gateway, for each hostname of a listener or for its address; `tcp://...` and the like for
    streams."""
    owner = gateway(g, key)
    for listener in owner.listeners if owner and owner.accepted.status else ():
        if not listener.served or port_problem(g, key, listener.port, listener.transport):
            continue
        scheme, usual = _SCHEMES.get(listener.protocol, (listener.protocol.lower(), 0))
        port = "" if listener.port == usual else f":{listener.port}"
        names = sorted(_hostnames(g, key, listener))
        address = next((address for address in owner.addresses if address not in _EVERY_ADDRESS), "localhost") if owner else ""
        for name in names[:SHOWN] or [f"[{address}]" if ":" in address else address]:
            yield f"{scheme}://{name}{port}"
        if len(names) > SHOWN:
            yield f"and {len(names) - SHOWN} more hostnames of listener {listener.name}"


def _hostnames(g: Graph, key: Key, listener: ListenerPlan) -> set[str]:
    """Returns the hostnames of a listener's routes; empty if a route serves any hostname."""
    hostnames = set()
    for route in ATTACHED.of(g, listener.owner, listener.name):
        for parent in parents(g, route):
            if parent.gateway == key:
                hostnames |= {name for table, name in parent.hosts if table == listener.table}
    return set() if "" in hostnames else hostnames
