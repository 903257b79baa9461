"""Runs long work on the event loop a few milliseconds at a time, shares the result between callers, and waits with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
SLICE: Final = 0.01
"""Seconds after which long work yields to the event loop."""
SHARE: Final = 5
"""A value is cached for at least this multiple of its computation time, so that computing it takes at most a fifth of a
core."""
RECENT: Final = 5.0
"""Seconds for which a stale value serves a caller that must not wait."""


async def in_slices(items: Iterable[T]) -> list[T]:
    """Consumes an iterator in slices, without blocking the event loop."""

    def collect() -> Generator[None, None, list[T]]:
        collected = []
        for item in items:
            collected.append(item)
            yield
        return collected

    return await step_by_step(collect())


async def step_by_step(work: Generator[None, None, T]) -> T:
    """Runs a generator to its end, without blocking the event loop for longer than one step."""
    started = time.monotonic()
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if time.monotonic() - started > SLICE:
            await asyncio.sleep(0)
            started = time.monotonic()


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event for at most `seconds`; returns whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Shared(Generic[T]):
    """Caches a value that is expensive to compute. Callers that arrive during a computation share its result."""

    def __init__(
        self, make: Callable[[], Awaitable[T]], version: Callable[[], Any] = lambda: None, seconds: float = 0
    ) -> None:
        """The value is current while the result of `version` is unchanged and not None, and for `seconds` after its
        computation began."""
        self._make, self._version, self._seconds = make, version, seconds
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._value_version: Any = None
        self._started, self._until = 0.0, 0.0

    async def at_once(self) -> T:
        """Returns the last value if it was requested recently; otherwise computes a new one."""
        recent = self._lock.locked() or time.monotonic() < max(self._until, self._started) + RECENT
        return self._value if self._value is not None and recent else await self.get()

    async def get(self) -> T:
        requested = time.monotonic()
        async with self._lock:
            if self._value is None or not self._fresh(requested):
                self._started, self._value_version = time.monotonic(), self._version()
                self._value = await self._make()
                duration = time.monotonic() - self._started
                self._until = self._started + max(self._seconds, duration * SHARE) if self._seconds else 0.0
            return self._value

    def _fresh(self, requested: float) -> bool:
        """Returns whether the value was computed after the request, is within its age, or nothing has changed since."""
        unchanged = self._value_version is not None and self._value_version == self._version()
        return self._started >= requested or time.monotonic() < self._until or unchanged
