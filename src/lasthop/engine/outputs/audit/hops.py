"""Every hop from a Gateway to a Service port or an XBackend that a route leads to, and how it is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.clusters import cluster
from lasthop.engine.plan.messages import CRASHED
from lasthop.engine.plan.observation import Failure, Health, LeafCertificate
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused, SystemStore, Waiver
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import HOPS, REFUSED
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.targets import misaimed, strays
from lasthop.engine.resolve.trust.waivers import describe
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output


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
    """What a certificate is verified against."""

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
    endpoints: int = 0
    """How many have been tried, of those that there are now."""
    ejected: tuple[tuple[str, float], ...] = ()
    """Endpoints that get no traffic for some seconds at a time, because connections to them keep failing, each with since
    when."""


class HopReport(msgspec.Struct, frozen=True, omit_defaults=True):
    gateway: Key
    backend: Key
    """A Service, or an XBackend, which asks for its TLS itself, so that its hops have no policy."""
    port: int
    manner: Manner
    detail: str
    policy: Key | None = None
    source: str = ""
    """Of a verified hop: one of `Source`."""
    waiver: Key | None = None
    waives: str = ""
    why: str = ""
    owner: str = ""
    until: float = 0.0
    """Unix time; 0: without an end."""
    routes: tuple[Key, ...] = ()
    """Those that lead here."""
    file: str = ""
    line: int = 0
    missing: tuple[Key, ...] = ()
    """The objects that it fails for want of."""
    observed: Observed | None = None
    """None where nothing has been seen, or nobody could see it: of a folder, for instance."""

    @property
    def address(self) -> str:
        return f"{self.backend.path if self.backend.kind == 'Service' else self.backend}:{self.port}"

    @property
    def policy_path(self) -> str:
        return self.policy.path if self.policy else ""

    @property
    def order(self) -> tuple[str | int, ...]:
        where = (self.gateway.path, self.backend.path, self.port)
        return (*where, self.manner, self.detail, self.policy_path, self.backend.kind)

    @property
    def objects(self) -> Iterator[Key]:
        """Where to look for what it says: the object that decides first."""
        yield from filter(None, (self.waiver, self.policy))
        yield from (self.backend, *self.routes) if self.backend.kind == XBACKEND else (*self.routes, self.backend)

    @property
    def mode(self) -> str:
        """One word for metrics: how it is verified, or that it is not."""
        return self.waives or "".join(word.capitalize() for word in self.manner.split())


Reported = tuple[HopReport, tuple[Key, ...]]
"""With the routes that lead there."""


def hop_report(g: Graph, hop: Hop) -> Reported:
    """Returns the report of one hop; one that cannot be processed does not hide the others."""
    found = _report.attempt(g, *hop)
    return _crashed(g, hop) if isinstance(found, Crash) else found


@query
def refused_report(g: Graph, gateway: Key, backend: Key, port: int) -> Reported:
    """Returns the report of a hop that routes ask for and no ReferenceGrant permits."""
    routes = REFUSED.of(g, gateway, backend, port)
    sources = sorted({(route.kind, route.namespace) for route in routes})
    who = " and ".join(f"{kind}s of namespace {namespace}" for kind, namespace in sources)
    detail = f"no ReferenceGrant in namespace {backend.namespace} lets {who} refer to it"
    return HopReport(gateway, backend, port, Manner.FAILING, detail), routes


def joined(reports: Iterable[Reported]) -> list[HopReport]:
    """Returns one line for each Gateway and port; all protocols that policies apply to share it."""
    routes: dict[HopReport, set[Key]] = {}
    for report, leading in reports:
        routes.setdefault(report, set()).update(leading)
    whole = (msgspec.structs.replace(report, routes=tuple(sorted(found, key=str))) for report, found in routes.items())
    return sorted(whole, key=lambda report: report.order)


@query
def _report(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Reported:
    hop = Hop(gateway, backend, port, protocol)
    return _judged(g, hop), tuple(HOPS.of(g, *hop))


def _crashed(g: Graph, hop: Hop) -> Reported:
    """Reports a hop that could not be computed, and so has no cluster, as failing."""
    return HopReport(hop.gateway, hop.backend, hop.port, Manner.FAILING, CRASHED), tuple(HOPS.of(g, *hop))


def _judged(g: Graph, hop: Hop) -> HopReport:
    where = (hop.gateway, hop.backend, hop.port)
    tls = hop_tls(g, *hop)
    policy = None if isinstance(tls, Plaintext) else _policy(tls.source)
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


def _of_tls(g: Graph, hop: Hop, where: tuple[Key, Key, int], tls: BackendTLS | Plaintext) -> HopReport:
    match tls:
        case BackendTLS(waiver=Waiver() as waiver):
            return HopReport(
                *where,
                Manner.WAIVED,
                describe(waiver),
                _policy(tls.source),
                waiver=waiver.key,
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
            missing = [(stray.policy, stray.target) for stray in strays(g, hop.backend)]
            missing += [(policy, f"{hop.backend.kind} {name}") for policy, name in misaimed(g, hop.backend)]
            detail = "no BackendTLSPolicy names this port"
            if not missing:
                return HopReport(*where, Manner.PLAINTEXT, detail)
            misses = "; ".join(f"{policy} names {name}, which does not exist" for policy, name in missing)
            return HopReport(*where, Manner.PLAINTEXT, f"{detail}: {misses}", missing[0][0])


def _policy(source: Key | None) -> Key | None:
    return source if source and source.kind == "BackendTLSPolicy" else None


REFUSALS = Output("refused-references", REFUSED, refused_report)
