"""How much of a backend's certificate is checked: the only order, and the only vocabulary, of verification.

Metrics, statuses, JSON and annotations write `label`; people read `words`. `BackendTLS.strength` classifies a connection, and
nothing outside this room does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Strength(IntEnum):
    """How much is checked, the least first. The CAs (the policy's own, or the system's) make no difference in strength: they
    are compared by themselves. A hop that fails closed is not on this scale: no connection is made."""

    PLAINTEXT = 0
    TLS = 1
    """TLS is required and cannot be made, so it is not known what would be checked."""
    WAIVED_ALL = 2
    WAIVED_NAMES = 3
    WAIVED_EXPIRY = 4
    """The dates of the whole chain are not checked, those of certificates that are not yet valid included."""
    PINNED_ONLY = 5
    """A known key or certificate, whatever its names and dates."""
    VERIFIED = 6
    """Chain or pinned certificate, dates and names."""

    @property
    def label(self) -> str:
        """As metrics and users write it: `WaivedAll`."""
        return _LABELS[self]

    @property
    def words(self) -> str:
        """As `waived (All)`."""
        return _WORDS[self]

    @property
    def group(self) -> str:
        """The same with one word for all waivers, as `audit` groups hops: `waived`."""
        return "waived" if self.waived else _WORDS[self]

    @property
    def waived(self) -> bool:
        return self in (Strength.WAIVED_ALL, Strength.WAIVED_NAMES, Strength.WAIVED_EXPIRY)

    @property
    def stronger(self) -> tuple[Strength, ...]:
        """What is stronger, the strongest first."""
        return _STRONGER[self]


_LABELS: Final = {each: "".join(word.capitalize() for word in each.name.split("_")) for each in Strength} | {
    Strength.TLS: "TLS"
}
_WORDS: Final = {
    Strength.PLAINTEXT: "plaintext",
    Strength.TLS: "TLS",
    Strength.WAIVED_ALL: "waived (All)",
    Strength.WAIVED_NAMES: "waived (Names)",
    Strength.WAIVED_EXPIRY: "waived (Expiry)",
    Strength.PINNED_ONLY: "pinned only",
    Strength.VERIFIED: "verified",
}
_STRONGER: Final = {each: tuple(sorted((s for s in Strength if s > each), reverse=True)) for each in Strength}
