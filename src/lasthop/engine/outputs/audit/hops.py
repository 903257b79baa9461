"""The rows of the audit: every hop from a Gateway to a Service port or an XBackend, and how it is verified."""

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
from lasthop.engine.resolve.policies.targets import misaimed, missed_targets
from lasthop.engine.resolve.trust.waivers import describe
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output

NAMED_CAS: Final = 2
"""Limit of CAs that a row names."""


class Observed(msgspec.Struct, frozen=True, order=True):
    health: Health
    since: float
    """Unix time, as all times here; 0: never."""
    last_success: float
    """The last TLS handshake; for plaintext, the last connection."""
    last_failure: float
    handshakes: int
    handshake_failures: int
    connect_failures: int
    """Failed handshakes included."""
    failures: tuple[Failure, ...]
    """Texts of the current failures."""
    certificates: tuple[LeafCertificate, ...]
    """Certificates that the backend presented, the first to expire first."""
    tls_versions: tuple[str, ...]
    endpoints: int = 0
    """Number of current endpoints that were tried."""
    ejected: tuple[tuple[str, float], ...] = ()
    """(endpoint, start) of repeated ejections because connections keep failing."""
    requests: int = 0
    """Requests (or connections of a stream) since the proxies started."""
    failed_requests: int = 0
    """Requests with a 5xx response."""


class HopReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the audit: the verdict on a hop, the routes that use it, and its observed state."""

    gateway: Key
    backend: Key
    """A Service or an XBackend. An XBackend decides its own TLS, so its hops have no policy."""
    port: int
    strength: Strength
    """The strength in effect, or the required one while connections fail."""
    detail: str
    names: tuple[str, ...] = ()
    """The certificate must contain one of these names."""
    basis: Basis | None = None
    """None without TLS, or if it cannot be configured."""
    acknowledged: str = ""
    """The acknowledgement of weak verification."""
    refused: bool = False
    """Connections fail closed."""
    reason: str = ""
    """The reason of the failure (see `plan/reasons`); empty if connections succeed or the reason has no name."""
    outside: Protocol | None = None
    """Passthrough or UDP, if policies do not apply."""
    policy: Key | None = None
    source: str = ""
    """The `TrustSource` of a fully verified hop."""
    waiver: Key | None = None
    why: str = ""
    owner: str = ""
    until: float = 0.0
    """Unix time of the waiver's end; 0 without an end."""
    routes: tuple[Key, ...] = ()
    """The routes that use the hop."""
    file: str = ""
    line: int = 0
    missing: tuple[Key, ...] = ()
    """The missing objects that make the hop fail."""
    observed: Observed | None = None
    """None if nothing observes the hop, for example in a folder."""
    beyond: bool = False
    """Fails closed for a reason beyond the verdict, for example because no port of the Gateway can be served."""

    @property
    def place(self) -> tuple[Key, Key, int]:
        """(Gateway, backend, port): one policy decides for all its protocols."""
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
        """The related objects, the deciding one first."""
        yield from filter(None, (self.waiver, self.policy))
        yield from (self.backend, *self.routes) if self.backend.kind == XBACKEND else (*self.routes, self.backend)

    @property
    def in_effect(self) -> Strength | None:
        """The strength of successful connections; None if they fail or the gateway adds no TLS."""
        return None if self.refused or self.outside else self.strength

    @property
    def manner(self) -> str:
        """The connection mode: `waived`, `failing closed`, `passthrough`."""
        return FAILING if self.refused else self.outside or self.strength.group

    @property
    def required(self) -> str:
        """The connection mode in words that do not claim an observed verification."""
        return "must be verified" if self.in_effect is Strength.VERIFIED else self.manner

    @property
    def success(self) -> str:
        """The event at `Observed.last_success`. The request after it may have failed."""
        return "handshake" if self.in_effect not in (None, Strength.PLAINTEXT) else "connection"

    @property
    def mode(self) -> str:
        """The connection mode as a metric label: `WaivedAll`, `FailingClosed`."""
        strength = self.in_effect
        return "".join(word.capitalize() for word in self.manner.split()) if strength is None else strength.label

    @property
    def recorded(self) -> bool:
        """Whether the record of changes covers the present state of the hop: it consists of verdicts on hops that policies
        apply to."""
        return self.outside is None and not self.beyond

    @property
    def endless(self) -> bool:
        return bool(self.waiver) and not self.until

    @property
    def waives(self) -> str:
        return self.strength.label if self.waiver else ""


ReportedHop = tuple[HopReport, tuple[Key, ...]]
"""(report, routes that use the hop)."""


def hop_report(g: Graph, hop: Hop) -> ReportedHop:
    """Returns the row of one hop. A crash affects only this row."""
    report = g.shielded(_report, hop)
    crashed = HopReport(*hop[:3], Strength.TLS, CRASHED, refused=True, beyond=True)
    return (crashed if isinstance(report, Crash) else report), tuple(HOPS.of(g, *hop))


@query
def refused_report(g: Graph, gateway: Key, backend: Key, port: int) -> ReportedHop:
    """Returns the row of a hop whose references lack a ReferenceGrant."""
    routes = REFUSED.of(g, gateway, backend, port)
    sources = sorted({(route.kind, route.namespace) for route in routes})
    who = " and ".join(f"{kind}s of namespace {namespace}" for kind, namespace in sources)
    detail = f"no ReferenceGrant in namespace {backend.namespace} lets {who} refer to it"
    row = HopReport(gateway, backend, port, Strength.TLS, detail, refused=True, reason=REF_NOT_PERMITTED, beyond=True)
    return row, routes


def joined(reports: Iterable[ReportedHop]) -> list[HopReport]:
    """Joins equal rows, so that all protocols of a port that policies apply to share one."""
    routes: dict[HopReport, set[Key]] = {}
    for report, leading in reports:
        routes.setdefault(report, set()).update(leading)
    whole = (msgspec.structs.replace(report, routes=tuple(sorted(keys, key=str))) for report, keys in routes.items())
    return sorted(whole, key=lambda report: report.order)


def _row(decision: Verdict) -> HopReport:
    """Returns a row without its `detail`."""
    verification = decision.verification
    basics = (*decision.hop[:3], decision.strength, "", verification.names, verification.basis, verification.acknowledged)
    return HopReport(*basics, policy=decision.policy)


def _failing(decision: Verdict, why: Problem) -> HopReport:
    return msgspec.structs.replace(_row(decision), detail=why.text, refused=True, reason=why.reason, missing=why.missing)


def _report(g: Graph, hop: Hop) -> HopReport:
    decision = verdict(g, *hop)
    tls = decision.connection
    if isinstance(tls, Refused):
        return _failing(decision, tls.why)
    if unserved := serves_nothing(g, hop.gateway):
        return msgspec.structs.replace(_failing(decision, unserved), beyond=True)
    if cluster(g, *hop) is None:
        detail = "Envoy refused its configuration; see the log for the reason"
        return msgspec.structs.replace(_row(decision), detail=detail, refused=True, beyond=True)
    report = msgspec.structs.replace(_row(decision), outside=None if hop.protocol.policed else hop.protocol)
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
            return "by hash; names and dates are not checked"


def _cas(tls: BackendTLS) -> str:
    """Returns the first few CAs as `CA corp`; `HopReport.basis` has their fingerprints."""
    cas = tls.trust.cas if isinstance(tls.trust, Anchors) else ()
    return f"CA {some([ca.subject for ca in cas], NAMED_CAS)}"


def _plaintext(g: Graph, hop: Hop) -> tuple[str, Key | None]:
    """Returns why a hop is plaintext, and a policy that probably targets it."""
    if hop.protocol is Protocol.PASSTHROUGH:
        return "passthrough of the client's own TLS; BackendTLSPolicy does not apply", None
    if hop.protocol is Protocol.UDP:
        return "no TLS is possible", None
    if hop.backend.kind == XBACKEND:
        return "its tls.mode is None", None
    missing = [(target.policy, target.target) for target in missed_targets(g, hop.backend)]
    missing += [(policy, f"{hop.backend.kind} {name}") for policy, name in misaimed(g, hop.backend)]
    misses = "; ".join(f"{policy} names {name}, which does not exist" for policy, name in missing)
    detail = "no BackendTLSPolicy names this port"
    return (f"{detail}: {misses}", missing[0][0]) if missing else (detail, None)


REFUSALS = Output("refused-references", REFUSED, refused_report)
