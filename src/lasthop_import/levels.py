"""Defines how a hop was verified by the old gateway and how it is verified by the new one."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from lasthop.engine.plan.strength import Strength


class OldLevel(StrEnum):
    """How the old gateway verified a backend."""

    PLAINTEXT = "plaintext"
    UNVERIFIED = "unverified"
    """TLS, any certificate accepted."""
    CHAIN = "chain"
    """Chain and dates, no name."""
    NAME = "name"
    """Chain, dates, one of several fixed names."""
    HOST_NAME = "host-name"
    """Chain, dates, and the name in the request's Host."""
    IP_NAME = "ip-name"
    """Chain, dates, and the endpoint's IP address as the name."""
    URI = "uri"
    """Chain, dates, and a URI, as in SPIFFE."""
    MESH = "mesh"
    """Mutual TLS with the certificates of a mesh."""
    PASSTHROUGH = "passthrough"
    """The client's own TLS."""
    BROKEN = "broken"
    """The configuration cannot have worked."""
    UNKNOWN = "unknown"
    """The deciding object is not in the input, or cannot be read."""


class HopOutcome(StrEnum):
    """A state of a hop other than the strength of the gateway's own connection."""

    PASSTHROUGH = "passthrough"
    """The TLS is the client's own."""
    TODO = "TODO"
    """It fails closed until a decision is made. Readers of the report search for this word."""
    KEPT = "policy kept"
    """Policies for named ports are copied; the Service that maps names to ports is not in the input."""
    CLOSED = "closed"
    """The route answers 500, because its access control is lost, until a decision opens it."""
    DROPPED = "dropped"
    """No written object refers to it, so nothing is sent there."""


class NewState(NamedTuple):
    """How the written objects treat a hop."""

    how: Strength | HopOutcome
    by: str = ""
    """How a verified hop identifies the certificate, in the report's words: name, uri or pinned."""

    @property
    def strength(self) -> Strength | None:
        return self.how if isinstance(self.how, Strength) else None

    @property
    def todo(self) -> bool:
        return self.how is HopOutcome.TODO

    @property
    def order(self) -> tuple[bool, bool, int, str]:
        """Sorts plaintext first, then the other strengths, the strongest first."""
        strength = self.strength
        return strength is None, strength is not Strength.PLAINTEXT, -(strength or 0), str(self)

    def __str__(self) -> str:
        """Returns the report's text: `waived: all`."""
        if isinstance(self.how, HopOutcome):
            return self.how
        if self.how.waived:
            return f"waived: {self.how.label.removeprefix('Waived').lower()}"
        return self.by or self.how.words


STRENGTH = {
    OldLevel.PLAINTEXT: 0,
    OldLevel.UNVERIFIED: 1,
    OldLevel.BROKEN: 1,
    OldLevel.UNKNOWN: 1,
    OldLevel.CHAIN: 2,
    OldLevel.MESH: 3,
    OldLevel.IP_NAME: 3,
    OldLevel.HOST_NAME: 3,
    OldLevel.NAME: 3,
    OldLevel.URI: 3,
    OldLevel.PASSTHROUGH: 3,
}
"""Orders levels by their checks; of two equal levels neither is weaker."""
VERIFYING = frozenset({OldLevel.CHAIN, OldLevel.NAME, OldLevel.HOST_NAME, OldLevel.IP_NAME, OldLevel.URI})


def over_believed(level: OldLevel, believed: OldLevel | None) -> bool:
    """Returns whether the author probably believes in more checks than the gateway performed."""
    return believed is not None and STRENGTH[believed] > STRENGTH[level]
