"""Limits rates: backoff with jitter, a token bucket, and a rate that adapts to the server. Time is a parameter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]


class Backoff:
    """Doubles from `first` to `most`. Each pause is between half of that and all of it, so that retries do not coincide."""

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
    """Allows `rate` per second on average, and `burst` at once."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self.rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._at = float(burst), clock()

    def take(self) -> float:
        """Takes a token, on credit if necessary, and returns the seconds until it is covered."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self.rate)

    def try_take(self) -> bool:
        """Takes a token if there is one."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self.rate)
        self._at = now


class Pace:
    """Adapts the rate to the server: it rises with every quick response, and halves after a slow response or an overload
    error."""

    SLOW: Final = 4.0
    """A response is slow if it takes this many times as long as the quickest one."""
    QUICK: Final = 0.1
    """A response within this many seconds is never slow."""
    PAUSE: Final = 1.0
    """Seconds for a lower rate to take effect, before it is lowered again."""

    def __init__(self, rate: float, most: float, burst: int, clock: Clock) -> None:
        self._bucket, self._most, self._clock = TokenBucket(rate, burst, clock), max(rate, most), clock
        self._least, self._quickest, self._slowed = rate / 10, math.inf, -math.inf

    @property
    def rate(self) -> float:
        return self._bucket.rate

    def take(self) -> float:
        """Returns the seconds to wait before the next request."""
        return self._bucket.take()

    def answered(self, seconds: float) -> None:
        if seconds > max(self.QUICK, self.SLOW * self._quickest):
            self.refused()
        else:
            self._bucket.rate = min(self._most, self.rate + 1)
        self._quickest = min(seconds, self._quickest * 1.01)  # the server may have become slower since

    def refused(self) -> None:
        now = self._clock()
        if now - self._slowed >= self.PAUSE:
            self._slowed, self._bucket.rate = now, max(self._least, self.rate / 2)
