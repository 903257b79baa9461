"""Strength of backend verification: the only order and the only vocabulary for how much of a certificate is checked.

Metrics, statuses, JSON and annotations contain `label`; texts for people contain `words`. Only `BackendTLS.strength`
classifies a connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Strength(IntEnum):
    """Orders verification from weakest to strongest. The choice of CAs (the policy's own or the system's) does not change the
    strength; CAs are compared separately. A hop that fails closed is not on this scale, because it makes no connection."""

    PLAINTEXT = 0
    TLS = 1
    """TLS is required but cannot be configured, so the checks are not known."""
    WAIVED_ALL = 2
    WAIVED_NAMES = 3
    WAIVED_EXPIRY = 4
    """The dates of the whole chain are not checked, neither notBefore nor notAfter."""
    PINNED_ONLY = 5
    """A pinned key or certificate; names and dates are not checked."""
    VERIFIED = 6
    """Chain or pinned certificate, dates and names are checked."""

    @property
    def label(self) -> str:
        """The name in metrics and annotations: `WaivedAll`."""
        return _LABELS[self]

    @property
    def words(self) -> str:
        """The name in texts: `waived (All)`."""
        return _WORDS[self]

    @property
    def group(self) -> str:
        """Like `words`, but `waived` for all waivers, as `audit` groups hops."""
        return "waived" if self.waived else _WORDS[self]

    @property
    def waived(self) -> bool:
        return self in (Strength.WAIVED_ALL, Strength.WAIVED_NAMES, Strength.WAIVED_EXPIRY)

    @property
    def stronger(self) -> tuple[Strength, ...]:
        """All stronger values, the strongest first."""
        return _STRONGER[self]


_LABELS: Final = {value: "".join(word.capitalize() for word in value.name.split("_")) for value in Strength} | {
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
_STRONGER: Final = {value: tuple(sorted((s for s in Strength if s > value), reverse=True)) for value in Strength}
