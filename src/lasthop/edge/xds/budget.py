"""Limits the requests of one Gateway's proxies to the controller. No I/O; time is an argument.

A proxy's credentials are in the Gateway's own namespace, so the Gateway's owner can send anything with them. Every limit
applies to one Gateway: exceeding it ends or delays the streams of that Gateway only.
"""

from __future__ import annotations

from typing import Final

MAX_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of a message that gRPC accepts from any peer. A proxy that reconnects lists all of its resources, some 200 bytes for
each cluster and its endpoints. gRPC's own limit of 4 MiB would lock out a Gateway with 20,000 clusters."""
ALLOWANCE: Final = 10_000
"""Names in a subscription beyond the names in the cache. A proxy that was disconnected while the controller restarted still
holds resources that were removed meanwhile."""
MAX_EXCESS: Final = 5 * ALLOWANCE
"""Unknown names in all streams of a Gateway. When many proxies reconnect at once, some retry after the proxies before them
have dropped the removed names."""
LONGEST_NAME: Final = 1_024
"""Characters. The longest name that we build has 650: two names of 253 each, their namespaces, a port and a hash."""
BASE: Final = 256 * 1024
PER_NAME: Final = 256
"""Bytes of a request for the node with its list of extensions, and for each name, which may occur twice and with a version."""
MAX_STREAMS: Final = 100
"""Streams of one Gateway at one replica."""
MAX_UNCONFIRMED: Final = 1_000
"""Responses of one type that a proxy has not confirmed. Envoy confirms each response."""
MAX_PENDING: Final = 4 * MAX_REQUEST
"""Bytes of queued requests."""
RATE: Final = 1_000.0
BURST: Final = 4_000.0
"""Requests per second, and requests at once. A large request counts as several."""
UNIT: Final = 4 * 1024
"""Bytes that count as one request."""
STREAM: Final = 20.0
"""Cost of a new stream, in requests."""
REFUSAL: Final = 50.0
"""Cost of a NACK, in requests: each is logged and starts a bisection."""

PER_HOP: Final = 16 * 1024
"""Bytes of a report for each hop, with the maximum number of endpoints."""
REPORT_RATE: Final = 4 * 1024 * 1024.0
REPORT_BURST: Final = 8 * REPORT_RATE
"""Bytes of reports per second, and at once. Faster reports are dropped: every report is complete, and one in ten suffices to
count a proxy as connected."""
READING: Final = 4
"""Reports of one Gateway that are decoded concurrently."""
QUEUE: Final = 200
"""Reports that may wait for decoding."""


class OverBudget(Exception):
    """A peer has exceeded a limit; the text names the limit."""


def largest_request(names: int) -> int:
    """Returns the maximum bytes of a request if that many names exist."""
    return min(MAX_REQUEST, BASE + PER_NAME * (names + ALLOWANCE))


def check_request(size: int, names: int) -> None:
    if size > (limit := largest_request(names)):
        raise OverBudget(f"a request has {size} bytes; this Gateway's resources need at most {limit}")


def check_report(size: int, hops: int) -> None:
    if size > (limit := min(MAX_REQUEST, BASE + PER_HOP * hops)):
        raise OverBudget(f"a report has {size} bytes; this Gateway's hops need at most {limit}")


def check_names(count: int, existing: int) -> None:
    if count > existing + ALLOWANCE:
        limit = f"{existing + ALLOWANCE}, {ALLOWANCE} more than this Gateway has"
        raise OverBudget(f"a subscription has {count} names; the limit is {limit}")


def check_excess(count: int) -> None:
    if count > MAX_EXCESS:
        raise OverBudget(f"{count} names in the streams of this Gateway are unknown; the limit is {MAX_EXCESS}")


def check_name(name: str) -> None:
    if len(name) > LONGEST_NAME:
        raise OverBudget(f"a name has {len(name)} characters; the limit is {LONGEST_NAME}")


class Allotment:
    """Limits the rate of one Gateway with a token bucket. Requests above the rate are delayed, so a burst after a restart is
    only slower."""

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, 0.0
        self.pending = 0
        """Bytes of queued requests."""

    def wait(self, cost: float, now: float) -> float:
        """Reserves a turn and returns the seconds until it begins. Setting the clock back adds no tokens."""
        self._tokens = self._saved(now) - cost
        self._at = now
        return max(0.0, -self._tokens / self._rate)

    def spend(self, cost: float, now: float) -> bool:
        """Takes a turn if it can begin at once; returns whether the turn was taken."""
        self._tokens, self._at = self._saved(now), now
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True

    def _saved(self, now: float) -> float:
        return min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)

    def admit(self, size: int) -> None:
        if self.pending + size > MAX_PENDING:
            raise OverBudget(f"{self.pending} bytes of requests are already queued; the limit is {MAX_PENDING}")


def cost(size: int) -> float:
    return 1.0 + size / UNIT
