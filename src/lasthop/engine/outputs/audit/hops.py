"""Every hop from a Gateway to a Service port or an XBackend that a route leads to, and how it is connected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.base.text.printable import some
from lasthop.engine.outputs.envoy.clusters import cluster
from lasthop.engine.plan.messages import CRASHED
from lasthop.engine.plan.observation import Failure, Health, LeafCertificate
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import REF_NOT_PERMITTED
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, Plaintext, Refused, TrustSource
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.plan.verdict import FAILING, Basis, Verdict
from lasthop.engine.resolve.backends.reach import HOPS, REFUSED
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.hops.verdict import verdict
from lasthop.engine.resolve.policies.targets import misaimed, strays
from lasthop.engine.resolve.trust.waivers import describe
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output

NAMED_CAS: Final = 2
"""CAs that a line names."""


class Observed(msgspec.Struct, frozen=True, order=True):
    health: Health
    since: float
    """Unix time, as all times here; 0: never."""
    last_success: float
    """The last handshake, in plaintext the last connection."""
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
    requests: int = 0
    """Requests since the proxies began; of a stream, connections. A handshake says nothing about them."""
    failed_requests: int = 0
    """Those of them that were answered with 5xx."""


class HopReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the audit: the verdict on a hop in words, with the routes that lead over it and what was observed."""

    gateway: Key
    backend: Key
    """A Service, or an XBackend, which decides on its TLS itself, so that its hops have no policy."""
    port: int
    strength: Strength
    """Of what is required, where connections fail."""
    detail: str
    names: tuple[str, ...] = ()
    """Any one of them must be in the certificate."""
    basis: Basis | None = None
    """None: there is no TLS, or it cannot be made."""
    acknowledged: str = ""
    """Who has acknowledged that it is as weak as it is."""
    refused: bool = False
    """Connections fail closed."""
    reason: str = ""
    """Why, as in `plan/reasons`; empty: they are made, or the reason has no name."""
    outside: Protocol | None = None
    """Passthrough or UDP, to which no policy applies."""
    policy: Key | None = None
    source: str = ""
    """A `TrustSource`, of a hop that is fully verified."""
    waiver: Key | None = None
    why: str = ""
    owner: str = ""
    until: float = 0.0
    """Unix time; 0: without an end."""
    routes: tuple[Key, ...] = ()
    """Those that lead here."""
    file: str = ""
    line: int = 0
    missing: tuple[Key, ...] = ()
    """The objects for want of which it fails."""
    observed: Observed | None = None
    """None where nothing observes: of a folder, for instance."""

    @property
    def place(self) -> tuple[Key, Key, int]:
        """Gateway, backend and port: one policy decides for all its protocols."""
        return self.gateway, self.backend, self.port

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
        """The objects to look at, the one that decides first."""
        yield from filter(None, (self.waiver, self.policy))
        yield from (self.backend, *self.routes) if self.backend.kind == XBACKEND else (*self.routes, self.backend)

    @property
    def in_effect(self) -> Strength | None:
        """The strength of the connections that are made; None: they fail, or their TLS is not the gateway's."""
        return None if self.refused or self.outside else self.strength

    @property
    def manner(self) -> str:
        """How it is connected, in a word or two: `waived`, `failing closed`, `passthrough`."""
        return FAILING if self.refused else self.outside or self.strength.group

    @property
    def required(self) -> str:
        """The same in words that do not claim that a certificate has been verified."""
        return "must be verified" if self.in_effect is Strength.VERIFIED else self.manner

    @property
    def success(self) -> str:
        """What succeeded at `Observed.last_success`: the request after it may have failed."""
        return "handshake" if self.in_effect not in (None, Strength.PLAINTEXT) else "connection"

    @property
    def mode(self) -> str:
        """The same as one word for metrics: `WaivedAll`, `FailingClosed`."""
        found = self.in_effect
        return "".join(word.capitalize() for word in self.manner.split()) if found is None else found.label

    @property
    def recorded(self) -> bool:
        """Whether the record of changes has its changes: no policy applies to passthrough and UDP, and a reference that is not
        permitted is no hop."""
        return self.outside is None and self.reason != REF_NOT_PERMITTED

    @property
    def endless(self) -> bool:
        return bool(self.waiver) and not self.until

    @property
    def waives(self) -> str:
        return self.strength.label if self.waiver else ""


Reported = tuple[HopReport, tuple[Key, ...]]
"""With the routes that lead there."""


def hop_report(g: Graph, hop: Hop) -> Reported:
    """Returns the row of one hop; one that cannot be processed has no cluster, and does not hide the others."""
    found = g.shielded(_report, hop)
    crashed = HopReport(*hop[:3], Strength.TLS, CRASHED, refused=True)
    return (crashed if isinstance(found, Crash) else found), tuple(HOPS.of(g, *hop))


@query
def refused_report(g: Graph, gateway: Key, backend: Key, port: int) -> Reported:
    """Returns the row of a hop that routes refer to and no ReferenceGrant permits."""
    routes = REFUSED.of(g, gateway, backend, port)
    sources = sorted({(route.kind, route.namespace) for route in routes})
    who = " and ".join(f"{kind}s of namespace {namespace}" for kind, namespace in sources)
    detail = f"no ReferenceGrant in namespace {backend.namespace} lets {who} refer to it"
    return HopReport(gateway, backend, port, Strength.TLS, detail, refused=True, reason=REF_NOT_PERMITTED), routes


def joined(reports: Iterable[Reported]) -> list[HopReport]:
    """Returns one row for each Gateway and port; all protocols that policies apply to share it."""
    routes: dict[HopReport, set[Key]] = {}
    for report, leading in reports:
        routes.setdefault(report, set()).update(leading)
    whole = (msgspec.structs.replace(report, routes=tuple(sorted(found, key=str))) for report, found in routes.items())
    return sorted(whole, key=lambda report: report.order)


def _row(found: Verdict) -> HopReport:
    """Returns what every row has; `detail` is still to be filled in."""
    known = found.verification
    basics = (*found.hop[:3], found.strength, "", known.names, known.basis, known.acknowledged)
    return HopReport(*basics, policy=found.policy)


def _failing(found: Verdict, why: Problem) -> HopReport:
    return msgspec.structs.replace(_row(found), detail=why.text, refused=True, reason=why.reason, missing=why.missing)


def _report(g: Graph, hop: Hop) -> HopReport:
    found = verdict(g, *hop)
    tls = found.connection
    if isinstance(tls, Refused):
        return _failing(found, tls.why)
    if unserved := serves_nothing(g, hop.gateway):
        return _failing(found, unserved)
    if cluster(g, *hop) is None:
        detail = "Envoy has refused its configuration; the log says why"
        return msgspec.structs.replace(_row(found), detail=detail, refused=True)
    report = msgspec.structs.replace(_row(found), outside=None if hop.protocol.policed else hop.protocol)
    if isinstance(tls, Plaintext):
        detail, named = _plaintext(g, hop)
        return msgspec.structs.replace(report, detail=detail, policy=named)
    waiver = tls.waiver
    if waiver is None:
        return msgspec.structs.replace(report, detail=_against(tls), source=tls.against or "")
    return msgspec.structs.replace(
        report,
        detail=describe(waiver),
        waiver=waiver.key,
        why=waiver.reason,
        owner=waiver.owner,
        until=waiver.expires or 0.0,
    )


def _against(tls: BackendTLS) -> str:
    names = " or ".join(str(name) for name in tls.names)
    match tls.against:
        case TrustSource.PINNED:
            return f"pinned, for {names}"
        case TrustSource.SYSTEM:
            return f"the system's CAs, for {names}"
        case TrustSource.CA:
            return f"{_cas(tls)}, for {names}"
        case _:
            return "by hash, whatever its names and dates"


def _cas(tls: BackendTLS) -> str:
    """Returns the CAs as `CA corp`, the first few of them; `HopReport.basis` has their fingerprints."""
    cas = tls.trust.cas if isinstance(tls.trust, Anchors) else ()
    return f"CA {some([ca.subject for ca in cas], NAMED_CAS)}"


def _plaintext(g: Graph, hop: Hop) -> tuple[str, Key | None]:
    """Returns why a hop is plaintext, and the policy that may be meant for it."""
    if hop.protocol is Protocol.PASSTHROUGH:
        return "the client's own TLS, to which no BackendTLSPolicy applies", None
    if hop.protocol is Protocol.UDP:
        return "no TLS is possible", None
    if hop.backend.kind == XBACKEND:
        return "its own tls.mode is None", None
    missing = [(stray.policy, stray.target) for stray in strays(g, hop.backend)]
    missing += [(policy, f"{hop.backend.kind} {name}") for policy, name in misaimed(g, hop.backend)]
    misses = "; ".join(f"{policy} names {name}, which does not exist" for policy, name in missing)
    detail = "no BackendTLSPolicy names this port"
    return (f"{detail}: {misses}", missing[0][0]) if missing else (detail, None)


REFUSALS = Output("refused-references", REFUSED, refused_report)
