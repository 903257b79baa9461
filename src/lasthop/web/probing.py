"""Probes backends for readers of the page.

A probe connects to backends, and any user of this machine can open the page. So readers cannot do more than the gateway itself
does. They can probe lines of the picture, but no address. A result is cached for some seconds, so that repeated requests cause
no more connections. Few probes run at once. The token and the origin exclude pages of other sites.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from lasthop.edge.probe.result import ProbeResult

KEPT: Final = 5.0
"""Seconds for which a result is cached."""
AT_ONCE: Final = 2
WAITING: Final = 8
"""Readers that may wait for a result."""


class TooMany(Exception):
    """Too many probes are running."""


class Probes:
    def __init__(self, make: Callable[[str], Awaitable[ProbeResult | None]]) -> None:
        """`make` probes a line by its id; None: the line does not exist."""
        self.token: Final = secrets.token_urlsafe(24)
        self._make = make
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._asked: Counter[str] = Counter()
        """The number of readers per line, including the one whose probe is running."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._kept: dict[str, tuple[float, ProbeResult]] = {}

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    async def get(self, line: str) -> ProbeResult | None:
        """Probes a line, or waits for its running probe. Raises `TooMany`."""
        if self._asked.total() >= WAITING:
            raise TooMany
        self._asked[line] += 1
        try:
            async with self._locks.setdefault(line, asyncio.Lock()):
                now = time.monotonic()
                self._kept = {id: kept for id, kept in self._kept.items() if kept[0] > now}
                if line in self._kept:
                    return self._kept[line][1]
                async with self._turn:
                    result = await self._make(line)
                if result is not None:
                    self._kept[line] = (time.monotonic() + KEPT, result)
                return result
        finally:
            self._asked[line] -= 1
            if not self._asked[line]:
                del self._asked[line], self._locks[line]
