"""Builds the admin API's responses. Equal requests share one, and building them never takes more than a fifth of a core.

Any user of this machine can send requests by TCP, as often as they like. The gateway's owner uses the socket, and does not
wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from lasthop.edge.slices import SHARE, Shared

QUESTIONS: Final = 32
"""Different requests that wait at the same time."""

Question = tuple[bool, str]
"""Whether the caller is the owner, and the request."""


class Busy(Exception):
    """Too many other responses are being built."""


class Answers:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._asked: dict[Question, tuple[Shared[bytes], int]] = {}
        """The responses that requests wait for, with the number of waiting requests. Finished responses are not kept, because
        they may have megabytes."""
        self._turn = asyncio.Lock()
        self._rested = 0.0

    async def get(self, question: Question, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Returns a response built after the request arrived. Raises Busy, and the exceptions of `make`."""
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
