"""Decides which share of the requests Envoy logs: all while they are few, and so many a second where they are more."""

from __future__ import annotations

from collections import deque
from typing import Final

ALL: Final = 1_000_000
SAMPLES: Final = 20.0
"""Lines a second. One costs Envoy a fifth of a request, most of it for the certificate (docs/measurements.md#observing)."""
FAILURES: Final = 200.0
TAPPED: Final = 1_000.0
"""Samples a second while somebody looks at requests."""
_SLACK: Final = 1.5
_FLOOD: Final = 10.0
"""How many times as much as is wanted is answered at once; less only if it lasts, so that a few requests are all logged."""
_SMOOTH: Final = 0.2
_HISTORY: Final = 16


class LogShare:
    """Of one log. Time is an argument."""

    def __init__(self, key: str, wanted: float) -> None:
        self.key, self.wanted = key, wanted
        self.value = ALL
        """Of a million."""
        self._average = 0.0
        self._history: deque[tuple[float, int]] = deque([(0.0, ALL)], maxlen=_HISTORY)

    def __repr__(self) -> str:
        return f"<{self.key}: {self.value / ALL:.2%}>"

    def adjust(self, lines: float, seconds: float) -> bool:
        """Takes how many lines were written in that time; returns whether the share is another one now."""
        rate, old = lines / max(seconds, 0.001), self.value
        self._average += _SMOOTH * (rate - self._average)
        if rate > self.wanted * _FLOOD:
            self._average = rate
        if self._average > self.wanted * _SLACK:
            self.value = max(1, round(old * self.wanted / self._average))
            self._average = self.wanted
        elif self._average < self.wanted / _SLACK and old < ALL:
            # Not at once: the next burst would be logged whole.
            self.value = min(ALL, 2 * old)
            self._average *= 2
        return self.value != old

    def applied(self, now: float) -> None:
        """Takes in that Envoy has it from now on."""
        if self._history[-1][1] != self.value:
            self._history.append((now, self.value))

    def weight(self, at: float) -> float:
        """Returns for how many a line stands that was written at that time."""
        share = next((value for since, value in reversed(self._history) if since <= at), self._history[0][1])
        return ALL / share
