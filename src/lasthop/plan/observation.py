"""What happened on the wire, as values: what proxies have seen of each hop, and what follows from it.

    ProxyReport (figures: whole, repeated, bounded)  ──observe──>  HopState (an input of the graph; changes seldom)
            └── shown as figures: audit, page, metrics, `lasthop top`

Every text here comes from a backend or a client, has been made printable and is cut to a length.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.upstream import Hop

MAX_ENDPOINTS: Final = 32
"""Endpoints of a hop that are told apart; those that fail come first."""
MAX_NAMES: Final = 10
MAX_WORDS: Final = 300
"""Characters of a failure in words, of a subject, an issuer or a name."""


class LeafCertificate(msgspec.Struct, frozen=True):
    """The certificate that a backend has shown."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """DNS, URI and IP subjectAltNames."""
    not_before: float
    not_after: float
    """Unix time."""


class EndpointSeen(msgspec.Struct, frozen=True):
    """What one proxy, or all of them, have seen of an endpoint since they began."""

    address: str
    """`10.0.0.1:8443`; empty where no connection was tried because there is no endpoint."""
    failures: int = 0
    failure: str = ""
    """The last failure to connect, in words."""
    last_failure: float = 0.0
    """Unix time; 0: never."""
    last_success: float = 0.0
    certificate: LeafCertificate | None = None
    tls_version: str = ""
    cipher: str = ""


class Traffic(msgspec.Struct, frozen=True):
    """Requests (or connections, of a stream) since the proxies began."""

    codes: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    """1xx to 5xx."""
    latency: tuple[tuple[float, int], ...] = ()
    """(upper bound in seconds, how many were at most that), cumulative; the last bound is infinite."""
    latency_sum: float = 0.0
    """Seconds."""
    active: int = 0

    @property
    def requests(self) -> int:
        return sum(self.codes)


class HopSeen(msgspec.Struct, frozen=True):
    handshakes: int = 0
    """That succeeded."""
    handshake_failures: int = 0
    connect_failures: int = 0
    """Connections that came to nothing, failed handshakes included."""
    last_success: float = 0.0
    last_failure: float = 0.0
    endpoints: tuple[EndpointSeen, ...] = ()
    """At most `MAX_ENDPOINTS`."""
    traffic: Traffic = Traffic()


class ProxyReport(msgspec.Struct, frozen=True):
    """All that one proxy has seen. Whole: the next one makes up for one that is lost."""

    gateway: Key
    proxy: str
    """The Pod's name; empty for the only proxy, on a host."""
    since: float
    hops: dict[Hop, HopSeen] = {}
    routes: dict[Key, Traffic] = {}


class Health(StrEnum):
    UNTRIED = "untried"
    """No connection has been tried, or so long ago that it says nothing."""
    WORKING = "working"
    PARTLY_FAILING = "partly failing"
    """Some endpoints fail, or all of them from some proxies."""
    FAILING = "failing"


class Failure(msgspec.Struct, frozen=True, order=True):
    """One reason for which connections fail, and where."""

    words: str
    endpoints: tuple[str, ...]
    """Those concerned; in a status only the first few are named."""
    proxies: tuple[str, ...] = ()
    """Those that see it, if others do not."""


class HopState(msgspec.Struct, frozen=True):
    """What is known of a hop with some certainty. It holds no counts and no times that pass, so it changes only when there is
    news; hysteresis and expiry are applied before it is set."""

    health: Health = Health.UNTRIED
    since: float = 0.0
    failures: tuple[Failure, ...] = ()
    endpoints: int = 0
    """How many have been tried."""
    certificates: tuple[LeafCertificate, ...] = ()
    """Each once, the first to expire first."""
    tls_versions: tuple[str, ...] = ()
