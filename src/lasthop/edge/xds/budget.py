"""Limits what the proxies of one Gateway may ask of the controller. No I/O; time is an argument.

Credentials of a proxy are in the Gateway's own namespace, so its owner may use them to send anything. Every limit counts for
one Gateway: exceeding it ends that Gateway's streams, or delays them, and those of no other.
"""

from __future__ import annotations

from typing import Final

MAX_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of a message that gRPC accepts from any peer. A proxy that reconnects lists everything it has, some 200 bytes for each
cluster and its endpoints, so gRPC's own limit of 4 MiB would lock out a Gateway with 20,000 of them."""
ALLOWANCE: Final = 10_000
"""Names in a subscription beyond those that the cache has: a proxy that was disconnected while the controller restarted holds
resources that were removed meanwhile."""
MAX_EXCESS: Final = 5 * ALLOWANCE
"""Such names in all streams of a Gateway. When many proxies reconnect at once, some try again after those before them have let
go of what is gone."""
LONGEST_NAME: Final = 1_024
"""Characters. The longest that we give out have 650: two names of 253 each, their namespaces, a port and a hash."""
BASE: Final = 256 * 1024
PER_NAME: Final = 256
"""Bytes of a request: for the node with its list of extensions, and for each name that may be in it, twice and with a
version."""
MAX_STREAMS: Final = 100
"""Of one Gateway, at one replica."""
MAX_UNCONFIRMED: Final = 1_000
"""Responses of one type that a proxy has not confirmed. Envoy confirms each."""
MAX_PENDING: Final = 4 * MAX_REQUEST
"""Bytes of requests that wait for their turn."""
RATE: Final = 1_000.0
BURST: Final = 4_000.0
"""Requests a second, and at once; a large one counts for several."""
UNIT: Final = 4 * 1024
"""Bytes of a request that count as much as a request."""
STREAM: Final = 20.0
"""Requests that a new stream counts for."""
REFUSAL: Final = 50.0
"""Those that the refusal of a response counts for: each is logged, and has what was refused narrowed down."""

PER_HOP: Final = 16 * 1024
"""Bytes of a report: for each hop with as many endpoints as are told apart."""
REPORT_RATE: Final = 4 * 1024 * 1024.0
REPORT_BURST: Final = 8 * REPORT_RATE
"""Bytes of reports a second, and at once. What comes faster is left out: every report is whole, and one in ten is enough for a
proxy to count as there."""
READING: Final = 4
"""Reports of one Gateway that are read at a time."""
QUEUE: Final = 200
"""Those that wait for that, unread."""


class OverBudget(Exception):
    """A peer has exceeded a limit; the text says which one."""


def largest_request(names: int) -> int:
    """Returns how many bytes a request may have if so many names exist."""
    return min(MAX_REQUEST, BASE + PER_NAME * (names + ALLOWANCE))


def check_request(size: int, names: int) -> None:
    if size > (limit := largest_request(names)):
        raise OverBudget(f"a request of {size} bytes; {limit} are enough for all that this Gateway has")


def check_report(size: int, hops: int) -> None:
    if size > (limit := min(MAX_REQUEST, BASE + PER_HOP * hops)):
        raise OverBudget(f"a report of {size} bytes; {limit} are enough for all that this Gateway has")


def check_names(count: int, known: int) -> None:
    if count > known + ALLOWANCE:
        raise OverBudget(f"{count} names in a subscription; the Gateway has {known}, and {ALLOWANCE} more are accepted")


def check_excess(count: int) -> None:
    if count > MAX_EXCESS:
        raise OverBudget(f"{count} names in all streams of this Gateway are unknown; {MAX_EXCESS} may be")


def check_name(name: str) -> None:
    if len(name) > LONGEST_NAME:
        raise OverBudget(f"a name of {len(name)} characters; the longest has {LONGEST_NAME}")


class Allotment:
    """The turns of one Gateway: who exceeds the rate waits, so that a burst after a restart is only slower."""

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, 0.0
        self.pending = 0
        """Bytes of requests that wait for their turn."""

    def wait(self, cost: float, now: float) -> float:
        """Takes a turn, and returns after how many seconds it begins. A clock set back gives nothing."""
        self._left = self._saved(now) - cost
        self._at = now
        return max(0.0, -self._left / self._rate)

    def spend(self, cost: float, now: float) -> bool:
        """Takes a turn if it can begin at once; returns whether it can."""
        self._left, self._at = self._saved(now), now
        if self._left < cost:
            return False
        self._left -= cost
        return True

    def _saved(self, now: float) -> float:
        return min(self._burst, self._left + max(0.0, now - self._at) * self._rate)

    def admit(self, size: int) -> None:
        if self.pending + size > MAX_PENDING:
            raise OverBudget(f"{self.pending} bytes of requests wait already; {MAX_PENDING} may")


def cost(size: int) -> float:
    return 1.0 + size / UNIT
