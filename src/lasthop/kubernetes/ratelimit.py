"""Limits rates: backoff with jitter, and a token bucket. Time is a parameter."""

from __future__ import annotations

import random
from collections.abc import Callable

Clock = Callable[[], float]


class Backoff:
    """Doubles from `first` to `most`; each pause is between half of that and all of it, so that retries do not coincide."""

    def __init__(self, first: float = 0.2, most: float = 30.0, jitter: Callable[[], float] = random.random) -> None:
        self._first, self._most, self._jitter = first, most, jitter
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self, at_least: float = 0.0) -> float:
        pause: float = min(self._most, self._first * 2 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least, pause * (0.5 + self._jitter() / 2))


class TokenBucket:
    """Allows `rate` a second in the long run, `burst` at once."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._at = float(burst), clock()

    def take(self) -> float:
        """Takes a token, on credit if there is none, and returns the seconds until it is covered."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Takes a token only if there is one."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._rate)
        self._at = now
