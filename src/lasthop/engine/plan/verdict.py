"""The verdict on one hop: how a Gateway connects to a backend, what it verifies there, and why.

    hop_tls ──> Verdict(hop, connection, verification, unknown) ──> audit, metrics, page, explain, log
                                         │
                                         └──> compare(before, after) ──> `check --against`, webhook, record, NoLongerVerified

`connection` is the configuration that Envoy gets. `verification` is the part that `compare` reads and that survives restarts,
so it contains fingerprints, not certificates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.times import UnixTime
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, HopTLS, Plaintext, SystemStore, TrustedCA, with_fingerprint
from lasthop.engine.plan.tls_options import LOWEST, VERSIONS
from lasthop.engine.plan.upstream import Hop

FAILING: Final = "failing closed"
LENGTH: Final = 500
"""Characters of a reason."""


class Basis(msgspec.Struct, frozen=True, omit_defaults=True):
    """The trust anchors, pins and other settings that a policy decides for a connection."""

    cas: tuple[TrustedCA, ...] = ()
    system: bool = False
    """The system CAs are trusted. Updates of the host replace them, so they are not listed."""
    revocation: bool = False
    """Whether revocation lists are checked. The lists themselves are not compared, because CAs issue new ones all the time."""
    pins: tuple[str, ...] = ()
    """Sorted, as `key:HEX` or `certificate:HEX`."""
    versions: tuple[str, str] = (LOWEST, VERSIONS[-1])
    """The lowest and the highest version of TLS."""
    client_certificate: str = ""
    """The Secret with the client certificate; empty without one."""
    client_sha256: str = ""
    """Fingerprint of the client certificate."""
    until: UnixTime | None = None
    """Unix time at which the waiver ends; None without a waiver or an end."""

    @property
    def shown(self) -> str:
        """Describes the client certificate; empty without one."""
        return with_fingerprint(self.client_certificate, self.client_sha256) if self.client_certificate else ""


class HopVerification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verification of a hop, or the reason why it fails closed, and its acknowledgement."""

    strength: Strength
    """The strength that applies, or that is required while the hop fails closed."""
    source: Key | None = None
    """The BackendTLSPolicy that applies, or the XBackend itself; None if nothing requires TLS."""
    trust: str = ""
    """The `TrustSource` of a fully verified hop."""
    names: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    """The references of the source, as `ConfigMap shop/ca`."""
    digest: str = ""
    """Of the CA certificates and pins."""
    waiver: Key | None = None
    acknowledged: str = ""
    """The object that acknowledges the weak verification; empty without acknowledgement."""
    refused: str = ""
    """Why connections fail closed; empty if they do not."""
    port_name: str = ""
    """Of the Service."""
    basis: Basis | None = None
    """None without TLS, or if it cannot be configured."""

    @property
    def words(self) -> str:
        if self.refused:
            return FAILING
        trust = f" ({self.trust})" if self.trust else ""
        names = f" for {' or '.join(self.names)}" if self.names else ""
        return f"{self.strength.words}{trust}{names}"


class Verdict(msgspec.Struct, frozen=True):
    """The connection and the verification of a hop, or why it is refused."""

    hop: Hop
    connection: HopTLS
    """The configuration that Envoy gets."""
    verification: HopVerification
    unknown: Unknown | None = None
    """The unread input, if the hop is closed for that reason."""

    @property
    def strength(self) -> Strength:
        return self.verification.strength

    @property
    def policy(self) -> Key | None:
        """The BackendTLSPolicy that decides; None also for an XBackend, which decides itself."""
        source = None if isinstance(self.connection, Plaintext) else self.connection.source
        return source if source and source.kind == "BackendTLSPolicy" else None


def verification_of(tls: BackendTLS, refs: tuple[str, ...], port_name: str) -> HopVerification:
    return HopVerification(
        tls.strength,
        tls.source,
        tls.against or "",
        tuple([str(name) for name in tls.names]),
        refs,
        _digest(tls),
        tls.waiver.key if tls.waiver else None,
        port_name=port_name,
        basis=_basis(tls),
    )


def refused(required: HopVerification, why: str) -> HopVerification:
    return msgspec.structs.replace(required, refused=limited(why, LENGTH))


def _basis(tls: BackendTLS) -> Basis:
    pins = [
        f"{kind}:{digest.hex()}"
        for kind, digests in (("key", tls.pins.keys), ("certificate", tls.pins.certificates))
        for digest in digests
    ]
    anchors = tls.trust if isinstance(tls.trust, Anchors) else None
    return Basis(
        cas=anchors.cas if anchors else (),
        system=isinstance(tls.trust, SystemStore),
        revocation=bool(anchors and anchors.crl),
        pins=tuple(sorted(pins)),
        versions=(tls.options.lowest, tls.options.max_version),
        client_certificate=str(tls.client_certificate) if tls.client_certificate else "",
        client_sha256=tls.client_sha256,
        until=tls.waiver.expires if tls.waiver else None,
    )


def _digest(tls: BackendTLS) -> str:
    """Returns the digest of certificates and pins, without the system CAs, which change with every update of the host."""
    parts = [
        tls.trust.pem if isinstance(tls.trust, Anchors) else b"",
        # CAs issue new lists all the time, so only their presence counts.
        b"crl" if isinstance(tls.trust, Anchors) and tls.trust.crl else b"",
        *sorted(tls.pins.keys),
        b"",
        *sorted(tls.pins.certificates),
    ]
    if not any(parts):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part + b"|")
    return digest.hexdigest()


def weakest(verifications: Iterable[HopVerification]) -> HopVerification:
    """Returns the weakest verification among hops that connect, or the weakest requirement if none connects. One policy
    decides for all protocols and Gateways, but their client certificates and lowest TLS versions differ. Raises ValueError
    without hops."""
    return min(verifications, key=_order)


def _order(verification: HopVerification) -> tuple[object, ...]:
    basis = verification.basis or Basis()
    presents_certificate = bool(basis.client_certificate)
    refused, acknowledged = bool(verification.refused), bool(verification.acknowledged)
    return refused, verification.strength, basis.versions, presents_certificate, acknowledged


class Weakening(msgspec.Struct, frozen=True, order=True):
    """A backend whose verification is weaker than before, without an acknowledgement."""

    backend: Key
    port: int
    now: str
    """For example `plaintext`."""
    because: str
    """The cause, as a clause."""
    remedy: str
    policy: Key | None = None
    """The policy that verified it before."""

    @property
    def message(self) -> str:
        kind = "" if self.backend.kind == "Service" else f"{self.backend.kind} "
        return f"backend {kind}{self.backend.path}:{self.port} is {self.now} now, because {self.because}"
