"""What is checked on a backend's certificate, the same model as upstream's drafts for GEP-4152.

BackendTLS = SNI + Trust and Pins (against what) + names + a waiver + protocol limits + the Gateway's certificate

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


class TrustedCA(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names a trust anchor: its subject is for people, its fingerprint decides."""

    subject: str
    sha256: str
    """Of the whole certificate, in hexadecimal digits."""

    def __str__(self) -> str:
        return f"{self.subject} (SHA-256 {self.sha256[:FINGERPRINT]}…)"


class Anchors(msgspec.Struct, frozen=True):
    """Trust anchors given by reference: a union of all that could be read, each once."""

    pem: bytes
    cas: tuple[TrustedCA, ...] = ()
    """The certificates of `pem`, in its order."""
    crl: bytes = b""
    """Revocation lists as PEM; with any, a certificate whose issuer has none is not accepted."""
    crl_of_leaf: bool = False
    """Only the backend's own certificate is looked up: none of the lists is that of a root."""
    weak: str = ""
    """One whose key or signature is below today's floor, as `old CA has a 1024-bit RSA key`."""


class SystemStore(msgspec.Struct, frozen=True):
    """The CA bundle of the host or image that runs the proxy. `digest` is of its content, so a changed store is a change."""

    path: str
    digest: str


Trust = Anchors | SystemStore


class Pins(msgspec.Struct, frozen=True):
    """The backend's own certificate must match one of them: SHA-256 of its key, or of all of it. As raw bytes, so that
    however a pin is written it is the same pin."""

    keys: frozenset[bytes] = frozenset()
    certificates: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.keys or self.certificates)


class Waiver(msgspec.Struct, frozen=True):
    """A VerificationWaiver in effect: what it gives up, why, and for how long."""

    key: Key
    strength: Strength
    """What remains of the verification: one of the waived ones."""
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
    """Any one of them must be in the certificate; none: names are not checked."""
    pins: Pins = Pins()
    waiver: Waiver | None = None
    """None: nothing is waived."""
    options: TLSOptions = TLSOptions()
    client_certificate: Key | None = None
    """The Secret with the certificate that is shown: the Gateway's own, or what the policy or XBackend names."""
    client_digest: str = ""
    """Of that certificate, so that a new one is a change of this."""

    @property
    def strength(self) -> Strength:
        """Classifies the connection by what is checked: with nothing to check against it is the weakest TLS, whatever the
        waiver allows."""
        if self.trust is None and not self.pins:
            return Strength.WAIVED_ALL
        if self.waiver:
            return self.waiver.strength
        return Strength.PINNED_ONLY if self.trust is None else Strength.VERIFIED

    @property
    def against(self) -> TrustSource | None:
        """What a fully verified certificate is checked against; None at every other strength."""
        if self.strength is not Strength.VERIFIED:
            return None
        if self.pins:
            return TrustSource.PINNED
        return TrustSource.SYSTEM if isinstance(self.trust, SystemStore) else TrustSource.CA


class Plaintext(msgspec.Struct, frozen=True):
    """No policy targets this port, or none can."""

    @property
    def strength(self) -> Strength:
        return Strength.PLAINTEXT


class Refused(msgspec.Struct, frozen=True):
    """The connection must fail."""

    problem: Problem
    """As a route that leads here says it."""
    source: Key | None = None
    """The BackendTLSPolicy or XBackend that decides on the TLS of the hop, if one does."""
    cause: Problem | None = None
    """What is wrong with that TLS, where this is why."""

    @property
    def why(self) -> Problem:
        return self.cause or self.problem


HopTLS = Plaintext | BackendTLS | Refused
