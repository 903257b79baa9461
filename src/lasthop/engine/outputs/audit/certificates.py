"""Lists certificates with their expiry: trust anchors for backends, and certificates that Gateways and backends present."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.base.api.profiles import GROUP
from lasthop.base.pki.parse import Anchor
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.gateways.gateways import client_certificate, gateway
from lasthop.engine.resolve.policies.judgement import validation_of
from lasthop.engine.resolve.policies.references import PIN_SET
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.resolve.trust.client_certificates import policy_certificate
from lasthop.engine.resolve.trust.pins import pinned
from lasthop.engine.resolve.trust.trust import CA_KINDS, CRL_SOON, bundle
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash

DAY: Final = 86400.0


class Role(StrEnum):
    ANCHOR = "CA of backends"
    PINNED = "pinned certificate"
    REVOCATIONS = "revocation list"
    """The revocation list of a CA; `not_after` is its next update."""
    SERVER = "certificate of a Gateway"
    CLIENT = "client certificate of a Gateway"
    BACKEND = "certificate that a backend shows"


class CertificateReport(msgspec.Struct, frozen=True, omit_defaults=True):
    not_after: float
    """Unix time."""
    role: Role
    holder: Key
    subject: str
    users: tuple[Key, ...] = ()
    """The policies, XBackends, Gateways and ListenerSets that name the holder."""
    file: str = ""
    line: int = 0
    not_before: float = 0.0
    port: int = 0
    """The port of the backend that presents it; 0 if an object contains it."""

    @property
    def place(self) -> str:
        """`Secret shop/tls`, or for a backend `Service shop/api:443`."""
        return f"{self.holder}:{self.port}" if self.port else str(self.holder)

    @property
    def objects(self) -> tuple[Key]:
        return (self.holder,)

    @property
    def order(self) -> tuple[float, str, str, int, str]:
        return self.not_after, self.role, str(self.holder), self.port, self.subject

    def due(self, now: float, days: float) -> bool:
        """Returns whether it is out of date, or will be within `days`."""
        days = min(days, CRL_SOON / DAY) if self.role is Role.REVOCATIONS else days
        return self.not_after - now <= days * DAY or now < self.not_before


Used = tuple[CertificateReport, Key]


def certificates_of(g: Graph, key: Key) -> tuple[Used, ...]:
    """Returns the certificates of a Gateway, a policy or an XBackend. A crashed query has a separate finding."""
    certificates = (_of_gateway if key.kind == "Gateway" else _of_policy).attempt(g, key)
    return () if isinstance(certificates, Crash) else certificates


def distinct_certificates(groups: Iterable[tuple[Used, ...]]) -> list[CertificateReport]:
    """Merges equal certificates, the first to expire first."""
    users: dict[CertificateReport, set[Key]] = {}
    for group in groups:
        for report, user in group:
            users.setdefault(report, set()).add(user)
    whole = (msgspec.structs.replace(report, users=tuple(sorted(keys, key=str))) for report, keys in users.items())
    return sorted(whole, key=lambda report: report.order)


@query
def _of_policy(g: Graph, policy: Key) -> tuple[Used, ...]:
    """Returns the certificates of a policy, even of a refused one, because expired certificates may be the cause."""
    validation = validation_of(g, policy)
    shown = xbackends.client_certificate(g, policy) if policy.kind == XBACKEND else policy_certificate(g, policy)
    refs = validation.ca_certificate_refs if validation else ()
    held = tuple((report, policy) for ref in refs for report in _of_ref(g, policy.namespace, ref))
    return held + (_of_pairs(g, [(Role.CLIENT, shown, policy)]) if isinstance(shown, Key) else ())


def _of_ref(g: Graph, namespace: str, ref: LocalObjectReference) -> Iterator[CertificateReport]:
    if (ref.group, ref.kind) in CA_KINDS:
        ca_bundle = bundle(g, namespace, ref)
        holder = Key(ref.kind, "" if ref.kind == "ClusterTrustBundle" else namespace, ref.name)
        if not isinstance(ca_bundle, Problem):
            yield from _reports(Role.ANCHOR, holder, ca_bundle.anchors)
            for crl in ca_bundle.crls:
                if crl.next_update is not None:
                    due, since = crl.next_update, crl.this_update
                    yield CertificateReport(due, Role.REVOCATIONS, holder, crl.issuer, not_before=since)
    elif (ref.group, ref.kind) == (GROUP, PIN_SET):
        key = Key(PIN_SET, namespace, ref.name)
        pins = pinned(g, key)
        if not isinstance(pins, Problem):
            yield from _reports(Role.PINNED, key, pins.anchors)
            for inner in pins.cas:
                yield from _of_ref(g, namespace, inner)


def _reports(role: Role, holder: Key, anchors: tuple[Anchor, ...]) -> Iterator[CertificateReport]:
    return (CertificateReport(a.not_after, role, holder, a.subject, not_before=a.not_before) for a in anchors)


@query
def _of_gateway(g: Graph, key: Key) -> tuple[Used, ...]:
    plan, client_secret = gateway(g, key), client_certificate(g, key)
    if plan is None:
        return ()
    shown = [(Role.SERVER, secret, listener.owner) for listener in plan.listeners for secret in listener.certificates]
    shown += [(Role.CLIENT, client_secret, key)] if isinstance(client_secret, Key) else []
    return _of_pairs(g, shown)


def _of_pairs(g: Graph, shown: list[tuple[Role, Key, Key]]) -> tuple[Used, ...]:
    pairs = ((role, secret, owner, key_pair(g, secret)) for role, secret, owner in shown)
    return tuple(
        (CertificateReport(pair.not_after, role, secret, pair.subject, not_before=pair.not_before), owner)
        for role, secret, owner, pair in pairs
        if isinstance(pair, KeyPair)
    )
