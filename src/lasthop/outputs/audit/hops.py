"""Every hop from a Gateway to a Service port or an XBackend that a route leads to, and how it is spoken to."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.core import Service
from lasthop.api.meta import Key
from lasthop.plan.tls import BackendTLS, HopTLS, Refused, SystemStore, Waiver, said_by
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.backends import outcome
from lasthop.resolve.policies.targets import WHOLE, claims
from lasthop.resolve.waivers import said
from lasthop.store.graph import Graph
from lasthop.store.store import read


class Manner(StrEnum):
    VERIFIED = "verified"
    PINNED_ONLY = "pinned only"
    """The certificate or its key is known, and its names are not looked at."""
    WAIVED = "waived"
    PLAINTEXT = "plaintext"
    PASSTHROUGH = "passthrough"
    UDP = "udp"
    FAILING = "failing closed"


class Source(StrEnum):
    """What a verified certificate is held against."""

    CA = "CA"
    SYSTEM = "System"
    PINNED = "pinned"


class HopReport(msgspec.Struct, frozen=True, order=True):
    gateway: str
    service: str
    port: int
    manner: Manner
    detail: str
    policy: str = ""
    source: str = ""
    """Of a verified hop: one of `Source`."""
    waiver: str = ""
    waives: str = ""
    why: str = ""
    owner: str = ""
    until: float = 0.0
    """Unix time; 0: without an end."""
    kind: str = "Service"
    """Of the backend."""

    @property
    def mode(self) -> str:
        """One word for metrics: how it is verified, or that it is not."""
        return self.waives or "".join(word.capitalize() for word in self.manner.split())


def hop_reports(g: Graph, hops: list[Hop]) -> list[HopReport]:
    """One line for each Gateway and port; the protocols that policies have a say in share its fate."""
    return sorted({_report(g, hop) for hop in hops})


def _report(g: Graph, hop: Hop) -> HopReport:
    where = (hop.gateway.path, hop.service.path, hop.port)
    tls = g.value(outcome, hop)
    return msgspec.structs.replace(_said(g, hop, where, tls), kind=hop.service.kind)


def _said(g: Graph, hop: Hop, where: tuple[str, str, int], tls: HopTLS) -> HopReport:
    if hop.protocol is Protocol.PASSTHROUGH and not isinstance(tls, Refused):
        return HopReport(*where, Manner.PASSTHROUGH, "the client's own TLS, in which no BackendTLSPolicy has a say")
    if hop.protocol is Protocol.UDP and not isinstance(tls, Refused):
        return HopReport(*where, Manner.UDP, "no TLS is possible")
    return _of_tls(g, hop, where, tls)


def _of_tls(g: Graph, hop: Hop, where: tuple[str, str, int], tls: HopTLS) -> HopReport:
    match tls:
        case BackendTLS(waiver=Waiver() as waiver):
            return HopReport(
                *where,
                Manner.WAIVED,
                said(waiver),
                tls.by,
                waiver=waiver.key.path,
                waives=waiver.mode,
                why=waiver.reason,
                owner=waiver.owner,
                until=waiver.expires or 0.0,
            )
        case BackendTLS() if tls.pinned_only:
            return HopReport(*where, Manner.PINNED_ONLY, "by hash, whatever its names and dates", tls.by)
        case BackendTLS():
            source = Source.PINNED if tls.pins else Source.SYSTEM if isinstance(tls.trust, SystemStore) else Source.CA
            against = {Source.PINNED: "pinned", Source.SYSTEM: "the system's CAs", Source.CA: "its own CA"}[source]
            detail = f"{against}, for {' or '.join(str(name) for name in tls.names)}"
            return HopReport(*where, Manner.VERIFIED, detail, tls.by, source)
        case Refused():
            return HopReport(*where, Manner.FAILING, tls.message, said_by(tls.policy) if tls.policy else "")
        case _:
            return HopReport(*where, Manner.PLAINTEXT, g.value(_why_plaintext, hop.service))


def _why_plaintext(g: Graph, key: Key) -> str:
    """Also a policy that means some port of the Service and names none that there is."""
    if key.kind == XBACKEND:
        return "its own tls.mode is None"
    service = read(g, key, Service)
    names = {port.name for port in service.spec.ports} if service else set()
    lost = [claim.policy.path for claim in g(claims, key) if any(s not in names and s != WHOLE for s in claim.sections)]
    return f"BackendTLSPolicy {', '.join(lost)} misses its port" if lost else "no BackendTLSPolicy names this port"
