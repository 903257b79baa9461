"""TLS to backends: trust anchors, pins, names, waiver and protocol limits, modelled after the upstream drafts for GEP-4152.

BackendTLS = SNI + Trust and Pins + names + a waiver + protocol limits + the Gateway's certificate

    trust, no pins     chain, dates, names                       trust and pins     all of that, and one of the pins
    pins only          one of the pins, no names, no dates       neither            nothing; only under a waiver of All
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls_options import TLSOptions

FINGERPRINT: Final = 16
"""Digits of a fingerprint that messages show."""


def with_fingerprint(certificate: str, sha256: str) -> str:
    return f"{certificate} (SHA-256 {sha256[:FINGERPRINT]}…)"


class TrustedCA(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identifies a trust anchor by its fingerprint; the subject is for messages."""

    subject: str
    sha256: str
    """Fingerprint of the certificate, in hexadecimal digits."""

    def __str__(self) -> str:
        return with_fingerprint(self.subject, self.sha256)


class Anchors(msgspec.Struct, frozen=True):
    """The union of all trust anchors that could be read from the references, without duplicates."""

    pem: bytes
    cas: tuple[TrustedCA, ...] = ()
    """The certificates of `pem`, in its order."""
    crl: bytes = b""
    """Revocation lists as PEM. If present, a certificate whose issuer has no list is rejected."""
    crl_of_leaf: bool = False
    """Only the backend's own certificate is checked for revocation, because no list belongs to a root."""
    weak: str = ""
    """Describes an anchor with a weak key or signature: `old CA has a 1024-bit RSA key`."""


class SystemStore(msgspec.Struct, frozen=True):
    """The CA bundle of the host or image that runs the proxy. `digest` changes with its content."""

    path: str
    digest: str


Trust = Anchors | SystemStore


class Pins(msgspec.Struct, frozen=True):
    """Pins: SHA-256 hashes of keys or whole certificates. The backend's own certificate must match one of them. Raw bytes, so
    that two spellings of a pin are equal."""

    keys: frozenset[bytes] = frozenset()
    certificates: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.keys or self.certificates)


class Waiver(msgspec.Struct, frozen=True):
    """A VerificationWaiver that is in effect."""

    key: Key
    strength: Strength
    """The remaining verification: one of the waived strengths."""
    reason: str
    owner: str = ""
    expires: float | None = None
    created: float = 0.0


class TrustSource(StrEnum):
    CA = "CA"
    SYSTEM = "System"
    PINNED = "pinned"


class SanType(StrEnum):
    DNS = "DNS"
    URI = "URI"


class San(msgspec.Struct, frozen=True):
    type: SanType
    value: str

    def __str__(self) -> str:
        return self.value


class BackendTLS(msgspec.Struct, frozen=True):
    source: Key
    """The BackendTLSPolicy that requires it, or the XBackend itself."""
    sni: str
    trust: Trust | None
    names: tuple[San, ...]
    """The certificate must contain one of these names; empty: names are not checked."""
    pins: Pins = Pins()
    waiver: Waiver | None = None

    options: TLSOptions = TLSOptions()
    client_certificate: Key | None = None
    """The Secret with the client certificate: the Gateway's own, or the one that the policy or XBackend names."""
    client_digest: str = ""
    """Digest of the client certificate and its chain, so that a renewal changes this value."""
    client_sha256: str = ""
    """Fingerprint of the client certificate."""

    @property
    def strength(self) -> Strength:
        """Classifies the connection. Without anchors and pins it is the weakest TLS, even if the waiver waives less."""
        if self.trust is None and not self.pins:
            return Strength.WAIVED_ALL
        if self.waiver:
            return self.waiver.strength
        return Strength.PINNED_ONLY if self.trust is None else Strength.VERIFIED

    @property
    def against(self) -> TrustSource | None:
        """The trust source of a fully verified connection; None at every other strength."""
        if self.strength is not Strength.VERIFIED:
            return None
        if self.pins:
            return TrustSource.PINNED
        return TrustSource.SYSTEM if isinstance(self.trust, SystemStore) else TrustSource.CA


class Plaintext(msgspec.Struct, frozen=True):
    """No policy targets this port, or policies cannot apply to its protocol."""

    @property
    def strength(self) -> Strength:
        return Strength.PLAINTEXT


class Refused(msgspec.Struct, frozen=True):
    """The connection must fail."""

    problem: Problem
    """The problem as the status of a route reports it."""
    source: Key | None = None
    """The BackendTLSPolicy or XBackend that decides the TLS of the hop, if any."""
    cause: Problem | None = None
    """The problem of the TLS configuration, if it is the cause."""

    @property
    def why(self) -> Problem:
        return self.cause or self.problem


HopTLS = Plaintext | BackendTLS | Refused
