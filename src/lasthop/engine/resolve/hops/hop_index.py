"""Indexes hops by connection mode. One indexer serves all modes, because most hops appear in none."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.weakening import weakened_hop
from lasthop.engine.resolve.policies.ancestors import ancestors
from lasthop.engine.resolve.trust.client_certificates import client_secret
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import Gate, indexer

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


WITHOUT_ROOM = Index[Key, Key]("without-room")
"""Policies whose status has no free ancestor entry, by Gateway."""


def _lists_something(tls: HopTLS) -> bool:
    return not isinstance(tls, BackendTLS) or tls.strength is not Strength.VERIFIED or tls.client_certificate is not None


@indexer(HOPS, deferrable=True, only_where=Gate(hop_tls, _lists_something))
def index_hops(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Iterator[Entry]:
    """Lists the client certificate and the waiver of a hop, its weakening, and its policy if the policy's status is full."""
    tls, hop = hop_tls(g, gateway, backend, port, protocol), Hop(gateway, backend, port, protocol)
    match tls:
        case BackendTLS():
            yield from client_secret(gateway, tls)
            yield from waived_port(hop, tls)
        case Refused(source=Key(kind="BackendTLSPolicy") as policy) if gateway in ancestors(g, policy).without_room:
            yield WITHOUT_ROOM.entry((gateway,), policy)
    yield from weakened_hop(g, hop)
