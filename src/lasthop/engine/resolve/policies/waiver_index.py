"""Indexes ports whose waiver is in effect, by Gateway."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.engine.plan.tls import BackendTLS
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer

WAIVED_PORTS = Index[Key, Key, int, Protocol]("waived-port")
"""Protocols with a waiver in effect, by Gateway, backend and port."""
WAIVED = Index[Key, tuple[Key, int]]("waived")
"""(backend, port) of waived hops by Gateway."""


def waived_port(hop: Hop, tls: BackendTLS) -> Iterator[Entry]:
    if tls.waiver:
        yield WAIVED_PORTS.entry((hop.gateway, hop.backend, hop.port), hop.protocol)


@indexer(WAIVED_PORTS)
def index_waived(g: Graph, gateway: Key, backend: Key, port: int) -> Iterator[Entry]:
    yield WAIVED.entry((gateway,), (backend, port))
