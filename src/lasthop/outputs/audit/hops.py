"""Every hop from a Gateway to a Service port or an XBackend that a route leads to, and how it is spoken to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.meta import Key
from lasthop.outputs.envoy.clusters import cluster
from lasthop.plan.messages import CRASHED
from lasthop.plan.tls import BackendTLS, HopTLS, Refused, SystemStore, Waiver
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.backends import Target, problem
from lasthop.resolve.policies.backend_tls import spoken
from lasthop.resolve.policies.targets import misaimed, strays
from lasthop.resolve.ports import serves_nothing
from lasthop.resolve.reach import HOPS
from lasthop.resolve.waivers import said
from lasthop.store.graph import Graph, query
from lasthop.store.node import Crash


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


class HopReport(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
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
    routes: tuple[str, ...] = ()
    """Those that lead here, as `HTTPRoute shop/web`."""
    file: str = ""
    line: int = 0
    kind: str = "Service"
    """Of the backend. An XBackend speaks for itself, so that its hops have no policy."""

    @property
    def backend(self) -> str:
        return f"{self.service}:{self.port}" if self.kind == "Service" else f"{self.kind} {self.service}:{self.port}"

    @property
    def mode(self) -> str:
        """One word for metrics: how it is verified, or that it is not."""
        return self.waives or "".join(word.capitalize() for word in self.manner.split())


Reported = tuple[HopReport, tuple[str, ...]]
"""With the routes that lead there."""


def hop_report(g: Graph, hop: Hop) -> Reported:
    """One hop; one that cannot be worked out does not hide the others."""
    found = _report.attempt(g, *hop)
    return _crashed(g, hop) if isinstance(found, Crash) else found


def joined(reports: Iterable[Reported]) -> list[HopReport]:
    """One line for each Gateway and port; the protocols that policies have a say in share its fate."""
    routes: dict[HopReport, set[str]] = {}
    for report, leading in reports:
        routes.setdefault(report, set()).update(leading)
    return sorted(msgspec.structs.replace(report, routes=tuple(sorted(found))) for report, found in routes.items())


def objects_of(report: HopReport) -> Iterator[Key]:
    """Where to look for what a report says: the object that decides first."""
    if report.waiver:
        yield _key("VerificationWaiver", report.waiver)
    if report.policy:
        yield _key("BackendTLSPolicy", report.policy)
    if report.kind == XBACKEND:
        yield _key(report.kind, report.service)
    for route in report.routes:
        yield _key(*route.split(" "))
    yield _key(report.kind, report.service)


def _key(kind: str, path: str) -> Key:
    namespace, _, name = path.rpartition("/")
    return Key(kind, namespace, name)


@query
def _report(g: Graph, gateway: Key, service: Key, port: int, protocol: Protocol) -> Reported:
    hop = Hop(gateway, service, port, protocol)
    return msgspec.structs.replace(_judged(g, hop), kind=hop.service.kind), tuple(map(str, HOPS.of(g, *hop)))


def _crashed(g: Graph, hop: Hop) -> Reported:
    """What could not be worked out has no cluster."""
    routes = tuple(map(str, HOPS.of(g, *hop)))
    where = (hop.gateway.path, hop.service.path, hop.port)
    return HopReport(*where, Manner.FAILING, CRASHED, kind=hop.service.kind), routes


def _judged(g: Graph, hop: Hop) -> HopReport:
    where = (hop.gateway.path, hop.service.path, hop.port)
    tls = spoken(g, hop)
    if isinstance(tls, Refused):
        return _of_tls(g, hop, where, tls)
    if unserved := serves_nothing(g, hop.gateway):
        return HopReport(*where, Manner.FAILING, unserved, _policy(tls.policy) if isinstance(tls, BackendTLS) else "")
    if cluster(g, *hop) is None:
        why = problem(g, hop.gateway, Target(hop.service, hop.port), hop.protocol)
        detail = why.text if why else "Envoy has refused its configuration; the log says why"
        return HopReport(*where, Manner.FAILING, detail, _policy(tls.policy) if isinstance(tls, BackendTLS) else "")
    if hop.protocol is Protocol.PASSTHROUGH:
        return HopReport(*where, Manner.PASSTHROUGH, "the client's own TLS, in which no BackendTLSPolicy has a say")
    if hop.protocol is Protocol.UDP:
        return HopReport(*where, Manner.UDP, "no TLS is possible")
    return _of_tls(g, hop, where, tls)


def _of_tls(g: Graph, hop: Hop, where: tuple[str, str, int], tls: HopTLS) -> HopReport:
    match tls:
        case BackendTLS(waiver=Waiver() as waiver):
            return HopReport(
                *where,
                Manner.WAIVED,
                said(waiver),
                _policy(tls.policy),
                waiver=waiver.key.path,
                waives=waiver.mode,
                why=waiver.reason,
                owner=waiver.owner,
                until=waiver.expires or 0.0,
            )
        case BackendTLS() if tls.pinned_only:
            return HopReport(*where, Manner.PINNED_ONLY, "by hash, whatever its names and dates", _policy(tls.policy))
        case BackendTLS():
            source = Source.PINNED if tls.pins else Source.SYSTEM if isinstance(tls.trust, SystemStore) else Source.CA
            against = {Source.PINNED: "pinned", Source.SYSTEM: "the system's CAs", Source.CA: "its own CA"}[source]
            detail = f"{against}, for {' or '.join(str(name) for name in tls.names)}"
            return HopReport(*where, Manner.VERIFIED, detail, _policy(tls.policy), source)
        case Refused():
            return HopReport(*where, Manner.FAILING, tls.message, _policy(tls.policy) if tls.policy else "")
        case _:
            if hop.service.kind == XBACKEND:
                return HopReport(*where, Manner.PLAINTEXT, "its own tls.mode is None")
            missing = [(s.policy.path, f"port {s.section}") for s in strays(g, hop.service)]
            missing += [(policy.path, f"Service {name}") for policy, name in misaimed(g, hop.service)]
            detail = "no BackendTLSPolicy names this port"
            if not missing:
                return HopReport(*where, Manner.PLAINTEXT, detail)
            misses = "; ".join(f"BackendTLSPolicy {policy} names {name}, which does not exist" for policy, name in missing)
            return HopReport(*where, Manner.PLAINTEXT, f"{detail}: {misses}", missing[0][0])


def _policy(key: Key) -> str:
    return key.path if key.kind == "BackendTLSPolicy" else ""
