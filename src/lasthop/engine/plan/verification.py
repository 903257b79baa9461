"""How a backend is verified, as a value that `verification_change.py` compares and that is remembered across restarts.

`Strength` is the only order. A hop that fails closed is not on it: nothing gets through.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.tls import TrustedCA
from lasthop.engine.plan.tls_options import LOWEST, VERSIONS


class Strength(IntEnum):
    """How much is checked, the least first. Against which CA (the policy's own, or the system's) makes no difference in
    strength: it is another choice, which is recorded."""

    PLAINTEXT = 0
    TLS = 1
    """Some TLS is asked for that cannot be made, so that it is not known what would be checked."""
    WAIVED_ALL = 2
    WAIVED_NAMES = 3
    WAIVED_EXPIRY = 4
    PINNED_ONLY = 5
    """A known key or certificate, whatever its names and dates."""
    VERIFIED = 6
    """Chain or pinned certificate, dates and names."""


MODES: Final = {
    Strength.PLAINTEXT: "Plaintext",
    Strength.TLS: "TLS",
    Strength.WAIVED_ALL: "WaivedAll",
    Strength.WAIVED_NAMES: "WaivedNames",
    Strength.WAIVED_EXPIRY: "WaivedExpiry",
    Strength.PINNED_ONLY: "PinnedOnly",
    Strength.VERIFIED: "Verified",
}
"""As metrics and users write them."""
WORDS: Final = {
    Strength.PLAINTEXT: "plaintext",
    Strength.TLS: "TLS",
    Strength.WAIVED_ALL: "waived (All)",
    Strength.WAIVED_NAMES: "waived (Names)",
    Strength.WAIVED_EXPIRY: "waived (Expiry)",
    Strength.PINNED_ONLY: "pinned only",
    Strength.VERIFIED: "verified",
}
STRONGER: Final = {each: tuple(sorted((s for s in Strength if s > each), reverse=True)) for each in Strength}
"""What is stronger than each, the strongest first."""
FAILING: Final = "failing closed"


class Basis(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a certificate is held against, and what else of the connection a policy decides."""

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
    """The Secret with the certificate that is shown; empty: none is."""
    until: float | None = None
    """Unix time at which the waiver ends; None: it has no end, or there is no waiver."""


class HopVerification(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a hop is verified, or why it fails closed, and by whose word."""

    strength: Strength
    """Of what is asked for, where it fails closed."""
    source: Key | None = None
    """The BackendTLSPolicy that applies, or the XBackend itself; None: nothing asks for TLS."""
    trust: str = ""
    """CA, System or pinned."""
    names: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    """What the source refers to, as `ConfigMap shop/ca`."""
    digest: str = ""
    """Of the CA certificates and pins."""
    waiver: Key | None = None
    acknowledged: str = ""
    """Who has written that it may be as weak as it is; empty: nobody."""
    refused: str = ""
    """Why connections fail closed; empty: they are made."""
    port_name: str = ""
    """Of the Service."""
    basis: Basis | None = None
    """None: there is no TLS, it cannot be made, or an older Lasthop has not recorded it."""

    @property
    def words(self) -> str:
        if self.refused:
            return FAILING
        trust = f" ({self.trust})" if self.trust else ""
        names = f" for {' or '.join(self.names)}" if self.names else ""
        return f"{WORDS[self.strength]}{trust}{names}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes a difference worth recording: a failing hop is the same whatever it fails for."""
        if self.refused:
            return (FAILING,)
        shown = (self.strength, self.source, self.trust, self.names, self.refs, self.digest, self.waiver)
        return (*shown, bool(self.acknowledged))


def weakest(found: Iterable[HopVerification]) -> HopVerification:
    """Returns the weakest of those that connect, or the weakest request if none does. One policy decides for all protocols and
    Gateways; their own certificates and lowest versions of TLS differ. Raises ValueError if there is none."""
    return min(found, key=_order)


def _order(found: HopVerification) -> tuple[object, ...]:
    basis = found.basis or Basis()
    shown = bool(basis.client_certificate)
    return bool(found.refused), found.strength, basis.versions, shown, bool(found.acknowledged)


class Weakening(msgspec.Struct, frozen=True, order=True):
    """A backend that is verified less than it was, which nobody has acknowledged."""

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
