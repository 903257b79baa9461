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
"""A value is kept at least this many times as long as it took to compute, so that computing it takes at most a fifth of a
core."""
RECENT: Final = 5.0
"""Seconds for which a stale value is good enough for a caller that must not wait."""


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
    begun = time.monotonic()
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if time.monotonic() - begun > SLICE:
            await asyncio.sleep(0)
            begun = time.monotonic()


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event for at most so many seconds; returns whether it is set."""
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
        """`version`: while it is unchanged, the value is current; None: unknown. `seconds`: the maximum age of the value."""
        self._make, self._version, self._seconds = make, version, seconds
        self._lock = asyncio.Lock()
        self._kept: T | None = None
        self._of: Any = None
        self._begun, self._until = 0.0, 0.0

    async def at_once(self) -> T:
        """Returns the last value if it was requested recently; otherwise computes a new one."""
        recent = self._lock.locked() or time.monotonic() < max(self._until, self._begun) + RECENT
        return self._kept if self._kept is not None and recent else await self.get()

    async def get(self) -> T:
        asked = time.monotonic()
        async with self._lock:
            if self._kept is None or not self._fresh(asked):
                self._begun, self._of = time.monotonic(), self._version()
                self._kept = await self._make()
                took = time.monotonic() - self._begun
                self._until = self._begun + max(self._seconds, took * SHARE) if self._seconds else 0.0
            return self._kept

    def _fresh(self, asked: float) -> bool:
        """Returns whether the value was computed after the request, is within its age, or nothing has changed since."""
        same = self._of is not None and self._of == self._version()
        return self._begun >= asked or time.monotonic() < self._until or same
