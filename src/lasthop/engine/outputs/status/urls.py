"""URLs at which clients reach a Gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.base.api.meta import Key
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.routing.attachment import ATTACHED, parents
from lasthop.engine.store.graph import Graph

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
        address = next((each for each in owner.addresses if each not in _EVERY_ADDRESS), "localhost") if owner else ""
        for name in names[:SHOWN] or [f"[{address}]" if ":" in address else address]:
            yield f"{scheme}://{name}{port}"
        if len(names) > SHOWN:
            yield f"and {len(names) - SHOWN} more hostnames of listener {listener.name}"


def _hostnames(g: Graph, key: Key, listener: ListenerPlan) -> set[str]:
    """Returns the hostnames of a listener's routes; empty if a route serves any hostname."""
    found = set()
    for route in ATTACHED.of(g, listener.owner, listener.name):
        for parent in parents(g, route):
            if parent.gateway == key:
                found |= {name for table, name in parent.hosts if table == listener.table}
    return set() if "" in found else found
