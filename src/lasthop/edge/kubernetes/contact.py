"""Detects that this replica has lost the API server while another replica has not. No I/O; time is a parameter.

    probes of the API server ──> silent ──┐
    another replica reached it just now ──┴──> cut off, until the server responds again

Without such a replica this one keeps its proxies, because no other replica could serve them better.
"""

from __future__ import annotations

from typing import Final

PROBE_INTERVAL: Final = 1.0
PROBE_WITHIN: Final = 2.0
LOST_AFTER_SECONDS: Final = 5.0
"""Seconds without a response after which the API server counts as lost."""
FRESH: Final = 2.5
"""Maximum age of another replica's contact that proves that the API server is available. It is below
`LOST_AFTER_SECONDS`, so that replicas that lose the server together never prove it for each other."""


class Contact:
    def __init__(self, now: float) -> None:
        self.cut_off = False
        self._heard, self._failures = now, 0

    def heard(self, at: float) -> None:
        """Records the time of the API server's last response."""
        if at > self._heard:
            self._heard, self._failures, self.cut_off = at, 0, False

    def failed(self) -> None:
        """Records a probe without a response. Two are required, because a process that was frozen has not lost the server."""
        self._failures += 1

    def age(self, now: float) -> float:
        """Returns the seconds since the API server's last response, for other replicas."""
        return max(0.0, now - self._heard)

    def record_peer_contact(self, age: float, now: float) -> None:
        """Records the age of another replica's contact."""
        if self._failures > 1 and self.age(now) >= LOST_AFTER_SECONDS and 0.0 <= age <= FRESH:
            self.cut_off = True
