"""Says how well a hop was verified by the old gateway, and how well it is by the new one."""

from __future__ import annotations

from enum import StrEnum

from lasthop.engine.plan.strength import Strength


class Level(StrEnum):
    """What the old gateway did on the way to a backend."""

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
    """Chain, dates, and a URI, as SPIFFE has it."""
    MESH = "mesh"
    """Mutual TLS with the certificates of a mesh."""
    PASSTHROUGH = "passthrough"
    """The client's own TLS."""
    BROKEN = "broken"
    """It cannot have worked, or nobody can know how."""


class NewLevel(StrEnum):
    """The words of the report for a hop as the written objects verify it. `strength` is their meaning."""

    PLAINTEXT = "plaintext"
    NAME = "name"
    URI = "uri"
    PINNED = "pinned"
    """One certificate, with its names and dates."""
    PINNED_ONLY = "pinned only"
    """By hash; names and dates are not checked."""
    WAIVED_NAMES = "waived: names"
    WAIVED_EXPIRY = "waived: expiry"
    WAIVED_ALL = "waived: all"
    PASSTHROUGH = "passthrough"
    TODO = "TODO"
    """It fails closed until somebody decides: work for the reader of the report, who finds it by this word."""
    DROPPED = "dropped"
    """There is no reference to it: nothing is sent there."""

    @property
    def strength(self) -> Strength | None:
        """None: the TLS is the client's own, or no connection is made."""
        return _STRENGTHS.get(self)


_STRENGTHS = {
    NewLevel.PLAINTEXT: Strength.PLAINTEXT,
    NewLevel.WAIVED_ALL: Strength.WAIVED_ALL,
    NewLevel.WAIVED_NAMES: Strength.WAIVED_NAMES,
    NewLevel.WAIVED_EXPIRY: Strength.WAIVED_EXPIRY,
    NewLevel.PINNED_ONLY: Strength.PINNED_ONLY,
    **dict.fromkeys((NewLevel.NAME, NewLevel.URI, NewLevel.PINNED), Strength.VERIFIED),
}


STRENGTH = {
    Level.PLAINTEXT: 0,
    Level.UNVERIFIED: 1,
    Level.BROKEN: 1,
    Level.CHAIN: 2,
    Level.MESH: 3,
    Level.IP_NAME: 3,
    Level.HOST_NAME: 3,
    Level.NAME: 3,
    Level.URI: 3,
    Level.PASSTHROUGH: 3,
}
"""Compares what two levels check; of equals neither is weaker."""
VERIFYING = frozenset({Level.CHAIN, Level.NAME, Level.HOST_NAME, Level.IP_NAME, Level.URI})


def over_believed(level: Level, believed: Level | None) -> bool:
    """Returns whether its author will think that more was checked than really was."""
    return believed is not None and STRENGTH[believed] > STRENGTH[level]
