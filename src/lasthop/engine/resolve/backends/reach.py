"""Reach: which routes lead over a hop, which hops lead to a backend, and which of them to one of its ports."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer

HOPS = Index[Key, Key, int, Protocol, Key]("hop")
"""The routes that lead over a hop."""
REFUSED = Index[Key, Key, int, Key]("refused-reference")
"""By Gateway, backend and port: routes whose reference to it no ReferenceGrant permits."""
REACH = Index[Key, Hop]("reach")
"""The hops to a Service, a ServiceImport or an XBackend."""
PORTS = Index[Key, Key, int, Protocol]("hop-port")
"""The protocols of a backend's port at a Gateway that policies may apply to."""


@indexer(HOPS)
def index_reach(g: Graph, gateway: Key, service: Key, port: int, protocol: Protocol) -> Iterator[Entry]:
    yield REACH.entry((service,), Hop(gateway, service, port, protocol))
    if protocol.policed:
        yield PORTS.entry((gateway, service, port), protocol)
