"""Makes the admin API's answers: whoever asks the same shares one, and making them never takes more than a fifth of a core.

Any user of this machine can ask by TCP, as often as they like. The owner of the gateway asks by the socket, and does not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from lasthop.edge.slices import SHARE, Shared

QUESTIONS: Final = 32
"""Different ones that wait for their answers at a time."""

Question = tuple[bool, str]
"""Whether the owner asks, and what."""


class Busy(Exception):
    """So many other answers are being made that this one is not."""


class Answers:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._asked: dict[Question, tuple[Shared[bytes], int]] = {}
        """The answers that somebody waits for, and how many do. None is kept longer: they may have megabytes."""
        self._turn = asyncio.Lock()
        self._rested = 0.0

    async def get(self, question: Question, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Returns an answer that was made since it was asked for. Raises Busy, and what `make` raises."""
        owner, _ = question
        if question not in self._asked and not owner and len(self._asked) >= QUESTIONS:
            raise Busy
        shared, waiting = self._asked.get(question) or (Shared(make if owner else lambda: self._paced(make)), 0)
        self._asked[question] = shared, waiting + 1
        try:
            return await shared.get()
        finally:
            shared, waiting = self._asked.pop(question)
            if waiting > 1:
                self._asked[question] = shared, waiting - 1

    async def _paced(self, make: Callable[[], Awaitable[bytes]]) -> bytes:
        async with self._turn:
            await self._sleep(max(0.0, self._rested - self._clock()))
            began = self._clock()
            try:
                return await make()
            finally:
                ended = self._clock()
                self._rested = ended + (ended - began) * (SHARE - 1)
