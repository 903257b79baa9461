"""Decides whether this replica has lost the API server while another replica has not. No I/O; time is a parameter.

    probes of the API server ──> silent ──┐
    another replica heard it just now ────┴──> cut off: until the server is heard again

Without such a replica this one keeps its proxies: they serve what they have, and nothing would be gained elsewhere.
"""

from __future__ import annotations

from typing import Final

PROBE_INTERVAL: Final = 1.0
PROBE_WITHIN: Final = 2.0
SILENT: Final = 5.0
"""Seconds without an answer after which the API server counts as lost."""
FRESH: Final = 2.5
"""Seconds since another replica heard the API server, at most, for that to prove that it is available. Below `SILENT`, so that
replicas that lose it together never count as proof for each other."""


class Contact:
    def __init__(self, now: float) -> None:
        self.cut_off = False
        self._heard, self._failures = now, 0

    def heard(self, at: float) -> None:
        """Takes when the API server was last heard."""
        if at > self._heard:
            self._heard, self._failures, self.cut_off = at, 0, False

    def failed(self) -> None:
        """Takes a probe that was not answered. A process that was frozen has not been silent: it takes two of these."""
        self._failures += 1

    def age(self, now: float) -> float:
        """Returns the seconds since the API server was heard, for other replicas."""
        return max(0.0, now - self._heard)

    def peer(self, age: float, now: float) -> None:
        """Takes how long ago another replica heard the API server."""
        if self._failures > 1 and self.age(now) >= SILENT and 0.0 <= age <= FRESH:
            self.cut_off = True
