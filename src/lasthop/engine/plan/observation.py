"""What happened on the wire, as values: what proxies have seen of each hop, and what follows from it.

    ProxyReport (figures: whole, repeated, bounded)  ──observe──>  HopState (an input of the graph; changes seldom)
            └── shown as figures: audit, page, metrics, `lasthop top`

Every text here comes from a backend or a client, has been made printable and is cut to a length.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Annotated, Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.upstream import Hop

MAX_ENDPOINTS: Final = 32
"""Endpoints of a hop that are told apart; those that fail come first."""
MAX_NAMES: Final = 10
MAX_WORDS: Final = 300
"""Characters of a failure in words, of a subject, an issuer or a name."""
MAX_CERTIFICATES: Final = 10
"""Of a hop, each different."""
LATENCY_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, inf)
"""Seconds."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""The sum over all proxies and hops of a Gateway still has less than 63 bits."""
Moment = Annotated[float, msgspec.Meta(ge=0, le=2**33)]
"""Unix time, until the year 2242. Every number of a report is one of these four types, which the decoder checks: a NaN, an
infinity or a date that no calendar has would end in whatever shows it."""
CertificateTime = Annotated[float, msgspec.Meta(ge=-62_135_596_800, le=253_402_300_799)]
"""Unix time, of the years 1 to 9999: a backend chooses the dates of its certificate."""
LatencyBound = Annotated[float, msgspec.Meta(ge=0)]


class LeafCertificate(msgspec.Struct, frozen=True, order=True, gc=False):
    subject: str
    issuer: str
    names: tuple[str, ...]
    """DNS, URI and IP subjectAltNames."""
    not_before: CertificateTime
    not_after: CertificateTime
    """Unix time."""


class EndpointSeen(msgspec.Struct, frozen=True, gc=False):
    """What one proxy, or all of them, have seen of an endpoint since they began."""

    address: str
    """`10.0.0.1:8443`; empty where no connection was tried because there is no endpoint."""
    failures: Count = 0
    failure: str = ""
    """The last failure to connect, in words."""
    handshake: bool = False
    """It was the TLS handshake that failed, not the connection before it."""
    in_a_row: Count = 0
    """Failures since the last success."""
    failing_since: Moment = 0.0
    """When the first of these was; Unix time, 0: never."""
    last_failure: Moment = 0.0
    last_success: Moment = 0.0
    certificate: LeafCertificate | None = None
    tls_version: str = ""
    cipher: str = ""
    ejected_since: Moment = 0.0
    """Since when it gets no traffic, for some seconds at a time, because connections to it keep failing; 0: it is not so."""
    config: str = ""
    """Under which configuration of the hop all of this was seen (`Connection.config`)."""
    request: bool = False
    """Connections are made, handshake included, and it is requests that get no answer, or none that is HTTP."""


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Requests (or connections, of a stream) since the proxies began."""

    codes: tuple[Count, Count, Count, Count, Count] = (0, 0, 0, 0, 0)
    """1xx to 5xx. A connection of a stream that was forwarded counts as 2xx, one that was not as 5xx."""
    latency: tuple[tuple[LatencyBound, Count], ...] = ()
    """(upper bound in seconds, how many were at most that), cumulative; the bounds are `LATENCY_BOUNDS`, or there are none."""
    active: Count = 0

    @property
    def requests(self) -> int:
        return sum(self.codes)

    @property
    def errors(self) -> int:
        """Those of class 5xx: the backend's own, or the proxy's for want of one."""
        return self.codes[4]

    @property
    def latency_sum(self) -> float:
        """Seconds that all took together, as exactly as the bounds are close."""
        total, below, bound = 0.0, 0, 0.0
        for upper, count in self.latency:
            total += (count - below) * (bound if upper == inf else (upper + bound) / 2)
            below, bound = count, upper
        return total

    def quantile(self, share: float) -> float | None:
        """Returns within how many seconds that share of the requests was answered, interpolated; None if there was none."""
        wanted, below, bound = share * (self.latency[-1][1] if self.latency else 0), 0, 0.0
        for upper, count in self.latency:
            if count >= wanted > 0:
                return bound if upper == inf else bound + (upper - bound) * (wanted - below) / max(1, count - below)
            below, bound = count, upper
        return None

    def __add__(self, other: Traffic) -> Traffic:
        return self._combined(other, 1)

    def __sub__(self, other: Traffic) -> Traffic:
        """Returns what has been added since `other`."""
        return self._combined(other, -1)

    def _combined(self, other: Traffic, sign: int) -> Traffic:
        one, two, three, four, five = (ours + sign * theirs for ours, theirs in zip(self.codes, other.codes, strict=True))
        bounds = self.latency or tuple((bound, 0) for bound, _ in other.latency)
        counts = dict(other.latency)
        latency = tuple((bound, count + sign * counts.get(bound, 0)) for bound, count in bounds)
        return Traffic((one, two, three, four, five), latency, self.active + max(0, sign) * other.active)


class HopSeen(msgspec.Struct, frozen=True, gc=False):
    handshakes: Count = 0
    """That succeeded."""
    handshake_failures: Count = 0
    connect_failures: Count = 0
    """Connections that came to nothing, failed handshakes included."""
    tls_failures: dict[str, Count] = {}
    """Failed handshakes by Envoy's own names: `fail_verify_san`, `fail_verify_error`, `connection_error`, ..."""
    last_success: Moment = 0.0
    last_failure: Moment = 0.0
    endpoints: tuple[EndpointSeen, ...] = ()
    """At most `MAX_ENDPOINTS`."""
    traffic: Traffic = Traffic()


class ProxyReport(msgspec.Struct, frozen=True):
    """All that one proxy has seen. Whole: the next one makes up for one that is lost."""

    gateway: Key
    proxy: str
    """The Pod's name; empty for the only proxy, on a host."""
    since: Moment
    at: Moment
    """When it was made, by the proxy's own clock, which may differ from the controller's."""
    hops: dict[Hop, HopSeen] = {}
    routes: dict[Key, Traffic] = {}


class Health(StrEnum):
    UNTRIED = "untried"
    """No connection has been tried, or so long ago that it says nothing."""
    WORKING = "working"
    PARTLY_FAILING = "partly failing"
    """Some endpoints fail, or all of them from some proxies."""
    FAILING = "failing"

    @property
    def bad(self) -> bool:
        return self in (Health.PARTLY_FAILING, Health.FAILING)


class Failure(msgspec.Struct, frozen=True, order=True):
    words: str
    endpoints: tuple[str, ...]
    """Those concerned; in a status only the first few are named. None where there is no endpoint at all."""
    proxies: tuple[str, ...] = ()
    """Those that see it, if others do not."""
    handshake: bool = False
    """The TLS handshake fails, not the connection before it."""
    request: bool = False
    """Connections are made, and the proxy answers every request with an error of its own."""


class HopState(msgspec.Struct, frozen=True):
    """What is known of a hop with some certainty. It holds no counts and no times that pass, so it changes only when there is
    news; hysteresis and expiry are applied before it is set."""

    health: Health = Health.UNTRIED
    since: float = 0.0
    failures: tuple[Failure, ...] = ()
    working: tuple[str, ...] = ()
    """Endpoints that have been connected to, from some proxy at least."""
    certificates: tuple[LeafCertificate, ...] = ()
    """Each once, the first to expire first."""
    tls_versions: tuple[str, ...] = ()
    ejected: tuple[str, ...] = ()
    """Endpoints that some proxy leaves out, again and again, because connections to them keep failing."""

    @property
    def endpoints(self) -> int:
        """How many have been tried."""
        return len({*self.working, *(address for failure in self.failures for address in failure.endpoints)})


_COLON: Final = ": "
"""Between where and why, in a message. No name, address or list of them contains it."""


def failing(where: str, words: str) -> str:
    """Returns a failure for the message of a condition."""
    return f"{where}{_COLON}{words}"


def failure_words(message: str) -> str:
    """Returns why, without where, of a message that begins with a failure. A condition has no other field for it."""
    return message.partition(_COLON)[2]
