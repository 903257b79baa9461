"""Runs the engine with proxies assumed healthy, so that the remaining findings are configuration errors."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.settings import INFRASTRUCTURE, PROXY
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash


def serve_all(engine: Engine, *, judge: bool = False) -> None:
    """Settles the engine as if every Gateway had its ports, an address and a proxy that acknowledges everything. With `judge`,
    it computes only findings and hops."""
    if judge:
        engine.index()
    else:
        engine.settle()
    for key in engine.store.keys("Gateway"):
        serve(engine.graph, key)
    if judge:
        engine.judge()
    else:
        engine.settle()


def serve(graph: Graph, key: Key) -> None:
    """Sets the inputs that give a Gateway of ours its ports, an address and a proxy."""
    plan = gateway.attempt(graph, key)
    if plan is None or isinstance(plan, Crash):
        return
    for address in plan.addresses:
        for listener in plan.listeners:
            BIND_RESULT.set(graph, BindResult(), key, address, listener.port, listener.transport)
    inside = ("::",) if plan.requested.inside else ()
    addresses = (("IPAddress", address) for address in ("0.0.0.0", *inside))
    INFRASTRUCTURE.set(graph, Infrastructure(tuple(addresses), inside=inside), key)
    PROXY.set(graph, ProxyState.serving(plan.listeners), key)
