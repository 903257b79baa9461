"""Runs long work on the event loop a few milliseconds at a time, shares the result between callers, and waits with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
SLICE: Final = 0.01
"""Seconds after which the event loop is given back."""
SHARE: Final = 5
"""How many times as long as a value took to make it is kept at least: the making never takes more of a core than a fifth."""
RECENT: Final = 5.0
"""Seconds for which a value that is no longer fresh is good enough for somebody who must not wait."""


async def in_slices(items: Iterable[T]) -> list[T]:
    """Consumes an iterator that works as it goes, without holding up others."""

    def collect() -> Generator[None, None, list[T]]:
        found = []
        for each in items:
            found.append(each)
            yield
        return found

    return await step_by_step(collect())


async def step_by_step(work: Generator[None, None, T]) -> T:
    """Runs a generator to its end, without holding up others for longer than one of its steps takes."""
    begun = time.monotonic()
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        if time.monotonic() - begun > SLICE:
            await asyncio.sleep(0)
            begun = time.monotonic()


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event for at most so many seconds, and returns whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Shared(Generic[T]):
    """A value that is made again only if it may have changed; those who ask while it is made wait for it together."""

    def __init__(
        self, make: Callable[[], Awaitable[T]], version: Callable[[], Any] = lambda: None, seconds: float = 0
    ) -> None:
        """`version`: as long as it is the same, so is the value; None: not known. `seconds`: how old the value may be."""
        self._make, self._version, self._seconds = make, version, seconds
        self._lock = asyncio.Lock()
        self._kept: T | None = None
        self._of: Any = None
        self._begun, self._until = 0.0, 0.0

    async def at_once(self) -> T:
        """Returns the value as it was made last, if somebody has asked for it lately; others wait for a new one."""
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
        """Returns whether it was made since it was asked for, or not old yet, or nothing has changed since."""
        same = self._of is not None and self._of == self._version()
        return self._begun >= asked or time.monotonic() < self._until or same
