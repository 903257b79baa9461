"""The verdict on one hop: how a Gateway connects to a backend, what it checks there, and why.

    hop_tls ──> Verdict(hop, connection, verification, unknown) ──> audit, metrics, page, explain, log
                                         │
                                         └──> compare(before, after) ──> `check --against`, webhook, record, NoLongerVerified

`connection` is what Envoy is configured with. `verification` is the part that two states of a hop are compared by and that is
remembered across restarts, so it holds no certificates, only their fingerprints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, HopTLS, Plaintext, SystemStore, TrustedCA
from lasthop.engine.plan.tls_options import LOWEST, VERSIONS
from lasthop.engine.plan.upstream import Hop

FAILING: Final = "failing closed"
LENGTH: Final = 500
"""Characters of a reason."""


class Basis(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a certificate is checked against, and what else of the connection a policy decides."""

    cas: tuple[TrustedCA, ...] = ()
    system: bool = False
    """The CAs of the system. The host replaces them with each update, so they are not listed."""
    revocation: bool = False
    """Whether revocation lists are checked. New lists are issued all the time, so they are not compared."""
    pins: tuple[str, ...] = ()
    """Sorted, as `key:HEX` or `certificate:HEX`."""
    versions: tuple[str, str] = (LOWEST, VERSIONS[-1])
    """The lowest and the highest version of TLS."""
    client_certificate: str = ""
    """The Secret with the client certificate; empty: there is none."""
    until: float | None = None
    """Unix time at which the waiver ends; None: it has no end, or there is no waiver."""


class HopVerification(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a hop is verified, or why it fails closed, and who has acknowledged that."""

    strength: Strength
    """Of what is required, where it fails closed."""
    source: Key | None = None
    """The BackendTLSPolicy that applies, or the XBackend itself; None: nothing requires TLS."""
    trust: str = ""
    """A `TrustSource`, of a fully verified hop."""
    names: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    """The references of the source, as `ConfigMap shop/ca`."""
    digest: str = ""
    """Of the CA certificates and pins."""
    waiver: Key | None = None
    acknowledged: str = ""
    """Who has acknowledged that it is as weak as it is; empty: it is not acknowledged."""
    refused: str = ""
    """Why connections fail closed; empty: they are made."""
    port_name: str = ""
    """Of the Service."""
    basis: Basis | None = None
    """None: there is no TLS, or it cannot be made."""

    @property
    def words(self) -> str:
        if self.refused:
            return FAILING
        trust = f" ({self.trust})" if self.trust else ""
        names = f" for {' or '.join(self.names)}" if self.names else ""
        return f"{self.strength.words}{trust}{names}"


class Verdict(msgspec.Struct, frozen=True):
    """How a hop is connected and verified, or why it is not."""

    hop: Hop
    connection: HopTLS
    """What Envoy is configured with."""
    verification: HopVerification
    unknown: Unknown | None = None
    """What has not been read, where the hop is closed for that reason."""

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
        f"{of}:{each.hex()}"
        for of, found in (("key", tls.pins.keys), ("certificate", tls.pins.certificates))
        for each in found
    ]
    anchors = tls.trust if isinstance(tls.trust, Anchors) else None
    return Basis(
        cas=anchors.cas if anchors else (),
        system=isinstance(tls.trust, SystemStore),
        revocation=bool(anchors and anchors.crl),
        pins=tuple(sorted(pins)),
        versions=(tls.options.lowest, tls.options.max_version),
        client_certificate=str(tls.client_certificate) if tls.client_certificate else "",
        until=tls.waiver.expires if tls.waiver else None,
    )


def _digest(tls: BackendTLS) -> str:
    """Returns the digest of the certificates and pins. The system's store changes with every update of the host."""
    parts = [
        tls.trust.pem if isinstance(tls.trust, Anchors) else b"",
        # Lists are issued anew all the time; only that there are any is worth a record.
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


def weakest(found: Iterable[HopVerification]) -> HopVerification:
    """Returns the weakest of those that connect, or the weakest request if none does. One policy decides for all protocols and
    Gateways; their own certificates and lowest versions of TLS differ. Raises ValueError if there is none."""
    return min(found, key=_order)


def _order(found: HopVerification) -> tuple[object, ...]:
    basis = found.basis or Basis()
    shown = bool(basis.client_certificate)
    return bool(found.refused), found.strength, basis.versions, shown, bool(found.acknowledged)


class Weakening(msgspec.Struct, frozen=True, order=True):
    """A backend that is verified less than it was, without an acknowledgement."""

    backend: Key
    port: int
    now: str
    """As `plaintext`."""
    because: str
    """The edit, as a clause."""
    remedy: str
    policy: Key | None = None
    """The one that verified it."""

    @property
    def message(self) -> str:
        kind = "" if self.backend.kind == "Service" else f"{self.backend.kind} "
        return f"backend {kind}{self.backend.path}:{self.port} is {self.now} now, because {self.because}"
