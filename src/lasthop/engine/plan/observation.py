"""Observed traffic as values: reports of the proxies for each hop, and the health that follows from them.

    ProxyReport (figures: whole, repeated, bounded)  ──observe──>  HopState (an input of the graph; changes seldom)
            └── shown as figures: audit, page, metrics, `lasthop top`

Every text here comes from a backend or a client, and is printable and limited in length.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Annotated, Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.upstream import Hop

MAX_ENDPOINTS: Final = 32
"""Endpoints of a hop that are reported one by one; failing ones come first."""
MAX_NAMES: Final = 10
MAX_WORDS: Final = 300
"""Characters of a failure text, a subject, an issuer or a name."""
MAX_CERTIFICATES: Final = 10
"""Different certificates per hop."""
LATENCY_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, inf)
"""Seconds."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""The sum over all proxies and hops of a Gateway still has less than 63 bits."""
Moment = Annotated[float, msgspec.Meta(ge=0, le=2**33)]
"""Unix time, until the year 2242. Every number of a report is one of these four types, which the decoder checks: a NaN, an
infinity or an impossible date would break the code that formats it."""
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
    """Observations of an endpoint by one proxy, or by all of them, since they started."""

    address: str
    """`10.0.0.1:8443`; empty if no connection was tried because no endpoint exists."""
    failures: Count = 0
    failure: str = ""
    """Text of the last connection failure."""
    handshake: bool = False
    """The TLS handshake failed, not the TCP connection."""
    in_a_row: Count = 0
    """Failures since the last success."""
    failing_since: Moment = 0.0
    """Time of the first of these failures (Unix time, 0: none)."""
    last_failure: Moment = 0.0
    last_success: Moment = 0.0
    certificate: LeafCertificate | None = None
    tls_version: str = ""
    cipher: str = ""
    ejected_since: Moment = 0.0
    """Start of the first of several short ejections, because connections to the endpoint keep failing; 0: not ejected."""
    config: str = ""
    """The configuration of the hop during these observations (`Connection.config`)."""
    request: bool = False
    """Connections and handshakes succeed, but requests get no HTTP response."""


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Counts requests (or connections of a stream) since the proxies started."""

    codes: tuple[Count, Count, Count, Count, Count] = (0, 0, 0, 0, 0)
    """1xx to 5xx. A forwarded connection of a stream counts as 2xx, any other as 5xx."""
    latency: tuple[tuple[LatencyBound, Count], ...] = ()
    """Cumulative (upper bound in seconds, count) pairs over `LATENCY_BOUNDS`; empty if nothing was measured."""
    active: Count = 0

    @property
    def requests(self) -> int:
        return sum(self.codes)

    @property
    def errors(self) -> int:
        """Responses of class 5xx, from the backend or from the proxy."""
        return self.codes[4]

    @property
    def latency_sum(self) -> float:
        """Estimated sum of all latencies in seconds."""
        total, below, bound = 0.0, 0, 0.0
        for upper, count in self.latency:
            total += (count - below) * (bound if upper == inf else (upper + bound) / 2)
            below, bound = count, upper
        return total

    def quantile(self, share: float) -> float | None:
        """Returns an interpolated latency quantile in seconds; None without requests."""
        rank, below, bound = share * (self.latency[-1][1] if self.latency else 0), 0, 0.0
        for upper, count in self.latency:
            if count >= rank > 0:
                return bound if upper == inf else bound + (upper - bound) * (rank - below) / max(1, count - below)
            below, bound = count, upper
        return None

    def __add__(self, other: Traffic) -> Traffic:
        return self._combined(other, 1)

    def __sub__(self, other: Traffic) -> Traffic:
        """Returns the increase since `other`."""
        return self._combined(other, -1)

    def _combined(self, other: Traffic, sign: int) -> Traffic:
        one, two, three, four, five = (ours + sign * theirs for ours, theirs in zip(self.codes, other.codes, strict=True))
        bounds = self.latency or tuple((bound, 0) for bound, _ in other.latency)
        counts = dict(other.latency)
        latency = tuple((bound, count + sign * counts.get(bound, 0)) for bound, count in bounds)
        return Traffic((one, two, three, four, five), latency, self.active + max(0, sign) * other.active)


class HopSeen(msgspec.Struct, frozen=True, gc=False):
    handshakes: Count = 0
    """Successful TLS handshakes."""
    handshake_failures: Count = 0
    connect_failures: Count = 0
    """Failed connections, failed handshakes included."""
    tls_failures: dict[str, Count] = {}
    """Failed handshakes by Envoy's own names: `fail_verify_san`, `fail_verify_error`, `connection_error`, ..."""
    last_success: Moment = 0.0
    last_failure: Moment = 0.0
    endpoints: tuple[EndpointSeen, ...] = ()
    """At most `MAX_ENDPOINTS`."""
    traffic: Traffic = Traffic()


class ProxyReport(msgspec.Struct, frozen=True):
    """All observations of one proxy. Each report is complete, so the next one replaces a lost one."""

    gateway: Key
    proxy: str
    """The Pod's name; empty for the only proxy, on a host."""
    since: Moment
    at: Moment
    """Time of the report by the proxy's clock, which may differ from the controller's."""
    hops: dict[Hop, HopSeen] = {}
    routes: dict[Key, Traffic] = {}


class Health(StrEnum):
    UNTRIED = "untried"
    """No connection was tried recently enough to count."""
    WORKING = "working"
    PARTLY_FAILING = "partly failing"
    """Some endpoints fail, or all endpoints fail from some proxies."""
    FAILING = "failing"

    @property
    def bad(self) -> bool:
        return self in (Health.PARTLY_FAILING, Health.FAILING)


class Failure(msgspec.Struct, frozen=True, order=True):
    words: str
    endpoints: tuple[str, ...]
    """The failing endpoints; a status names only the first few. Empty if the backend has no endpoint."""
    proxies: tuple[str, ...] = ()
    """The proxies that observe the failure, if others do not."""
    handshake: bool = False
    """The TLS handshake fails, not the connection before it."""
    request: bool = False
    """Connections succeed, but the proxy answers every request with its own error."""


class HopState(msgspec.Struct, frozen=True):
    """The settled health of a hop. It contains no counts and no elapsed times, so it changes only on news; hysteresis and
    expiry are applied before."""

    health: Health = Health.UNTRIED
    since: float = 0.0
    failures: tuple[Failure, ...] = ()
    working: tuple[str, ...] = ()
    """Endpoints that at least one proxy has connected to."""
    certificates: tuple[LeafCertificate, ...] = ()
    """Distinct certificates, the first to expire first."""
    tls_versions: tuple[str, ...] = ()
    ejected: tuple[str, ...] = ()
    """Endpoints that a proxy keeps ejecting, because connections to them fail."""

    @property
    def endpoints(self) -> int:
        """Number of endpoints that were tried."""
        return len({*self.working, *(address for failure in self.failures for address in failure.endpoints)})


_COLON: Final = ": "
"""Separates place and cause in a message. No name, address or list of them contains it."""


def failing(where: str, words: str) -> str:
    """Returns a failure for the message of a condition."""
    return f"{where}{_COLON}{words}"


def failure_words(message: str) -> str:
    """Returns the cause, without the place, from a message that `failing` made. A condition has no separate field for it."""
    return message.partition(_COLON)[2]
