"""Reach: which routes lead over a hop, and which hops lead to a backend."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.meta import Key
from lasthop.plan.upstream import Hop, Protocol
from lasthop.store.graph import Graph
from lasthop.store.sources import Entry, Index
from lasthop.store.stages import indexer

HOPS = Index[Key, Key, int, Protocol, Key]("hop")
"""The routes that lead over a hop."""
REACH = Index[Key, Hop]("reach")
"""The hops to a Service, a ServiceImport or an XBackend."""


@indexer(HOPS)
def index_reach(g: Graph, gateway: Key, service: Key, port: int, protocol: Protocol) -> Iterator[Entry]:
    yield REACH.entry((service,), Hop(gateway, service, port, protocol))
