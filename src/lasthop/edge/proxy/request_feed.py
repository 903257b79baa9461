"""Streams requests to readers as they are logged, and keeps the last failed ones.

A slow reader misses requests and receives their number. It never delays the proxy or other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Final

from lasthop.edge.proxy.entry import AccessLogEntry

KEPT: Final = 200
"""Failed requests that are kept."""
WAITING: Final = 1_000
"""Requests queued for one reader."""
READERS: Final = 8


class TooManyReaders(Exception):
    """The maximum number of readers is connected."""


class RequestFeed:
    def __init__(self) -> None:
        self._readers: set[FeedReader] = set()
        self._failed: deque[AccessLogEntry] = deque(maxlen=KEPT)

    @property
    def open(self) -> bool:
        """Returns whether there are readers. If so, Envoy should log as many requests as possible."""
        return bool(self._readers)

    def publish(self, entry: AccessLogEntry) -> None:
        if entry.failed:
            self._failed.append(entry)
        for reader in self._readers:
            reader.put(entry)

    def skipped(self, lines: int) -> None:
        """Reports the number of logged lines that were not read to the readers."""
        for reader in self._readers:
            reader.miss(lines)

    def failed(self, route: str) -> list[AccessLogEntry]:
        """Returns the last failed requests of a route (`HTTPRoute shop/web`), the latest first."""
        return [entry for entry in reversed(self._failed) if entry.route == route]

    @contextlib.contextmanager
    def reading(self) -> Iterator[FeedReader]:
        if len(self._readers) >= READERS:
            raise TooManyReaders(f"{READERS} readers already follow requests, which is the limit; close one of them")
        reader = FeedReader()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)


class FeedReader:
    def __init__(self) -> None:
        self._waiting: deque[AccessLogEntry] = deque()
        self._news = asyncio.Event()
        self._missed = 0

    def put(self, entry: AccessLogEntry) -> None:
        if len(self._waiting) >= WAITING:
            self.miss(1)
        else:
            self._waiting.append(entry)
            self._news.set()

    def miss(self, number: int) -> None:
        self._missed += number
        self._news.set()

    async def read(self) -> tuple[list[AccessLogEntry], int]:
        """Waits for entries; returns them and the number of entries missed since the last call."""
        await self._news.wait()
        self._news.clear()
        entries, missed = list(self._waiting), self._missed
        self._waiting.clear()
        self._missed = 0
        return entries, missed
