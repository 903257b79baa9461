"""Indexes routes by hop, and hops by backend and port."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer

HOPS = Index[Key, Key, int, Protocol, Key]("hop")
"""The routes that use a hop."""
REFUSED = Index[Key, Key, int, Key]("refused-reference")
"""Routes whose reference lacks a ReferenceGrant, by Gateway, backend and port."""
REACH = Index[Key, Hop]("reach")
"""The hops to a Service, a ServiceImport or an XBackend."""
PORTS = Index[Key, Key, int, Protocol]("hop-port")
"""The protocols of a backend's port at a Gateway that policies may apply to."""


@indexer(HOPS)
def index_reach(g: Graph, gateway: Key, service: Key, port: int, protocol: Protocol) -> Iterator[Entry]:
    yield REACH.entry((service,), Hop(gateway, service, port, protocol))
    if protocol.policed:
        yield PORTS.entry((gateway, service, port), protocol)
