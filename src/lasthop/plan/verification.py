"""How a backend is verified, as a value that can be compared with what it was before, and remembered.

What fails closed lets nothing through, so it is never a weakening; of everything else `Strength` is the order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from lasthop.api.meta import Key


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
