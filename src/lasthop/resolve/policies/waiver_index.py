"""Ports on which a waiver is in effect, counted by Gateway."""

from __future__ import annotations

from typing import Any

from lasthop.api.meta import Key
from lasthop.plan.tls import BackendTLS, Mode
from lasthop.plan.upstream import Hop
from lasthop.resolve.hops import hop_tls
from lasthop.store.graph import Emitter, Graph, query


@query
def _emit_ports(g: Graph, *member: Any) -> tuple[tuple[tuple[str, Key, Key, int], bool], ...]:
    hop = Hop(*member)
    tls = hop_tls(g, *hop)
    waived = isinstance(tls, BackendTLS) and tls.mode is not Mode.STRICT
    return ((("waived-port", hop.gateway, hop.backend, hop.port), True),) if waived else ()


WAIVED_PORTS = Emitter("waived-ports", "hop", _emit_ports)
"""Each port once, whatever the number of its protocols."""


@query
def _emit_gateway(g: Graph, gateway: Key, service: Key, port: int) -> tuple[tuple[tuple[str, Key], bool], ...]:
    return ((("waived", gateway), True),)


WAIVED = Emitter("waived", "waived-port", _emit_gateway)


def waived_ports(g: Graph, gateway: Key) -> int:
    return g.size("waived", gateway)
