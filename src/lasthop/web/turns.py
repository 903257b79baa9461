"""Lets a few callers work at a time: each has a queue of its own, and callers take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class Full(Exception):
    """A caller has as many waiting as it may; the text says how many."""


class Turns:
    def __init__(self, at_once: int, each: int, waiting: int) -> None:
        """`at_once`: how many work; `each`: how many of them for one caller; `waiting`: how many of one caller wait."""
        self._at_once, self._each, self._most = at_once, each, waiting
        self._working: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Of callers with something in it, the next to have a turn first."""

    def __repr__(self) -> str:
        return f"<Turns: {self._working.total()} working, {sum(map(len, self._queues.values()))} waiting>"

    @contextlib.asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Waits for a turn. Who gives up waiting (a timeout) leaves the queue. Raises Full."""
        queue = self._queues.setdefault(caller, deque())
        if len(queue) >= self._most:
            raise Full(f"{self._most} requests wait already")
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        self._admit()
        try:
            await place
            yield
        finally:
            if place.done() and not place.cancelled():
                self._working[caller] -= 1
            else:
                self._leave(caller, place)
            self._working += Counter()  # without those that have none
            self._admit()

    def _admit(self) -> None:
        while self._working.total() < self._at_once:
            caller = next((each for each in self._queues if self._working[each] < self._each), None)
            if caller is None:
                return
            place = self._queues[caller][0]
            self._leave(caller, place)
            if not place.cancelled():  # else its task has not had its turn to leave
                self._working[caller] += 1
                place.set_result(None)

    def _leave(self, caller: str, place: asyncio.Future[None]) -> None:
        queue = self._queues.pop(caller, deque())
        with contextlib.suppress(ValueError):  # it has left already
            queue.remove(place)
        if queue:
            self._queues[caller] = queue
