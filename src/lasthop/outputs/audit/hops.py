"""Every hop from a Gateway to a Service port that a route leads to, and how it is spoken to."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.tls import BackendTLS, HopTLS, Refused, SystemStore
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.policies.backend_tls import hop_tls
from lasthop.store.graph import Graph


class Manner(StrEnum):
    VERIFIED = "verified"
    PLAINTEXT = "plaintext"
    FAILING = "failing closed"
    PASSTHROUGH = "passthrough (client's TLS, not ours)"
    UDP = "udp (no TLS possible)"


class HopReport(msgspec.Struct, frozen=True, order=True):
    gateway: str
    service: str
    port: int
    manner: Manner
    detail: str
    policy: str = ""


def hop_reports(g: Graph, hops: list[Hop]) -> list[HopReport]:
    """One line for each Gateway and port; the protocols that policies have a say in share its fate."""
    policed = {(hop.gateway, hop.service, hop.port) for hop in hops if hop.protocol.policed}
    found = [_report(*hop, g.value(hop_tls, *hop)) for hop in policed]
    return sorted([*found, *(_exempt(hop) for hop in hops if not hop.protocol.policed)])


def _exempt(hop: Hop) -> HopReport:
    manner = Manner.UDP if hop.protocol is Protocol.UDP else Manner.PASSTHROUGH
    return HopReport(hop.gateway.path, hop.service.path, hop.port, manner, "no BackendTLSPolicy has a say in it")


def _report(gateway: Key, service: Key, port: int, tls: HopTLS) -> HopReport:
    match tls:
        case BackendTLS():
            source = "the system's CAs" if isinstance(tls.trust, SystemStore) else "its own CA"
            detail = f"{source}, for {' or '.join(str(name) for name in tls.names)}"
            return HopReport(gateway.path, service.path, port, Manner.VERIFIED, detail, tls.policy.path)
        case Refused():
            policy = tls.policy.path if tls.policy else ""
            return HopReport(gateway.path, service.path, port, Manner.FAILING, tls.message, policy)
        case _:
            return HopReport(gateway.path, service.path, port, Manner.PLAINTEXT, "no BackendTLSPolicy names this port")
