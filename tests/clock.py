"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Time that stands still unless the test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
