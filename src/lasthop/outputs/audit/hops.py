"""Every hop from a Gateway to a Service port or an XBackend that a route leads to, and how it is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.meta import Key
from lasthop.outputs.envoy.clusters import cluster
from lasthop.plan.messages import CRASHED
from lasthop.plan.observation import Failure, Health, LeafCertificate
from lasthop.plan.tls import BackendTLS, Plaintext, Refused, SystemStore, Waiver
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.policies.targets import misaimed, strays
from lasthop.resolve.ports import serves_nothing
from lasthop.resolve.reach import HOPS
from lasthop.resolve.waivers import describe
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

    @property
    def asked(self) -> str:
        """In words that do not say that it has happened."""
        return "must be verified" if self is Manner.VERIFIED else str(self)


class Source(StrEnum):
    """What a verified certificate is held against."""

    CA = "CA"
    SYSTEM = "System"
    PINNED = "pinned"


class Observed(msgspec.Struct, frozen=True, order=True):
    """What has happened on a hop."""

    health: Health
    since: float
    """Unix time, as all times here; 0: never."""
    last_success: float
    last_failure: float
    handshakes: int
    handshake_failures: int
    connect_failures: int
    """Failed handshakes included."""
    failures: tuple[Failure, ...]
    """Why connections fail now, in words."""
    certificates: tuple[LeafCertificate, ...]
    """What the backend has shown, the first to expire first."""
    tls_versions: tuple[str, ...]


class HopReport(msgspec.Struct, frozen=True, order=True, omit_defaults=True, rename={"backend": "service"}):
    gateway: str
    backend: str
    """As `shop/api`; users of the JSON know it as `service`."""
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
    """Of the backend. An XBackend asks for its TLS itself, so that its hops have no policy."""
    missing: tuple[Key, ...] = ()
    """The objects that it fails for want of."""
    observed: Observed | None = None
    """None where nothing has been seen, or nobody could see it: of a folder, for instance."""

    @property
    def address(self) -> str:
        return f"{self.backend}:{self.port}" if self.kind == "Service" else f"{self.kind} {self.backend}:{self.port}"

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
    """One line for each Gateway and port; all protocols that policies apply to share it."""
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
        yield _key(report.kind, report.backend)
    for route in report.routes:
        yield _key(*route.split(" "))
    yield _key(report.kind, report.backend)


def _key(kind: str, path: str) -> Key:
    namespace, _, name = path.rpartition("/")
    return Key(kind, namespace, name)


@query
def _report(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Reported:
    hop = Hop(gateway, backend, port, protocol)
    return msgspec.structs.replace(_judged(g, hop), kind=hop.backend.kind), tuple(map(str, HOPS.of(g, *hop)))


def _crashed(g: Graph, hop: Hop) -> Reported:
    """What could not be worked out has no cluster."""
    routes = tuple(map(str, HOPS.of(g, *hop)))
    where = (hop.gateway.path, hop.backend.path, hop.port)
    return HopReport(*where, Manner.FAILING, CRASHED, kind=hop.backend.kind), routes


def _judged(g: Graph, hop: Hop) -> HopReport:
    where = (hop.gateway.path, hop.backend.path, hop.port)
    tls = hop_tls(g, *hop)
    policy = "" if isinstance(tls, Plaintext) or tls.source is None else _policy(tls.source)
    if isinstance(tls, Refused):
        return HopReport(*where, Manner.FAILING, tls.why.text, policy, missing=tls.why.missing)
    if unserved := serves_nothing(g, hop.gateway):
        return HopReport(*where, Manner.FAILING, unserved.text, policy, missing=unserved.missing)
    if cluster(g, *hop) is None:
        return HopReport(*where, Manner.FAILING, "Envoy has refused its configuration; the log says why", policy)
    if hop.protocol is Protocol.PASSTHROUGH:
        return HopReport(*where, Manner.PASSTHROUGH, "the client's own TLS, to which no BackendTLSPolicy applies")
    if hop.protocol is Protocol.UDP:
        return HopReport(*where, Manner.UDP, "no TLS is possible")
    return _of_tls(g, hop, where, tls)


def _of_tls(g: Graph, hop: Hop, where: tuple[str, str, int], tls: BackendTLS | Plaintext) -> HopReport:
    match tls:
        case BackendTLS(waiver=Waiver() as waiver):
            return HopReport(
                *where,
                Manner.WAIVED,
                describe(waiver),
                _policy(tls.source),
                waiver=waiver.key.path,
                waives=waiver.mode,
                why=waiver.reason,
                owner=waiver.owner,
                until=waiver.expires or 0.0,
            )
        case BackendTLS() if tls.pinned_only:
            return HopReport(*where, Manner.PINNED_ONLY, "by hash, whatever its names and dates", _policy(tls.source))
        case BackendTLS():
            source = Source.PINNED if tls.pins else Source.SYSTEM if isinstance(tls.trust, SystemStore) else Source.CA
            against = {Source.PINNED: "pinned", Source.SYSTEM: "the system's CAs", Source.CA: "its own CA"}[source]
            detail = f"{against}, for {' or '.join(str(name) for name in tls.names)}"
            return HopReport(*where, Manner.VERIFIED, detail, _policy(tls.source), source)
        case _:
            if hop.backend.kind == XBACKEND:
                return HopReport(*where, Manner.PLAINTEXT, "its own tls.mode is None")
            missing = [(s.policy.path, f"port {s.section}") for s in strays(g, hop.backend)]
            missing += [(policy.path, f"Service {name}") for policy, name in misaimed(g, hop.backend)]
            detail = "no BackendTLSPolicy names this port"
            if not missing:
                return HopReport(*where, Manner.PLAINTEXT, detail)
            misses = "; ".join(f"BackendTLSPolicy {policy} names {name}, which does not exist" for policy, name in missing)
            return HopReport(*where, Manner.PLAINTEXT, f"{detail}: {misses}", missing[0][0])


def _policy(key: Key) -> str:
    return key.path if key.kind == "BackendTLSPolicy" else ""
