"""Follow Envoy's access log as it grows, and keep it from filling the disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from lasthop.proxy.entry import Entry, parse
from lasthop.proxy.failures import why

SIZE_LIMIT: Final = 10 * 1024 * 1024
_LOOK_EVERY: Final = 0.2
_LONGEST_LINE: Final = 256 * 1024
_PIECE: Final = 1024 * 1024


async def follow(path: Path, *, from_end: bool, size_limit: int = SIZE_LIMIT) -> AsyncIterator[Entry]:
    """Each entry that is written from now on, with `why` filled in; for ever.

    `from_end` leaves out what the file holds already: for an Envoy that was adopted, that is old news.
    """
    tail = Tail(path, from_end=from_end, size_limit=size_limit)
    try:
        while True:
            for line in tail.read():
                if (entry := parse(line)) is not None:
                    yield msgspec.structs.replace(entry, why=why(entry))
            if not tail.behind:
                await asyncio.sleep(_LOOK_EVERY)
    finally:
        tail.close()


class Tail:
    """The whole lines that have been added to a file since the last look.

    There are three cases besides growth: the file is not there (yet), it was cut short by somebody (begin at its start),
    or it was replaced by another one (finish the old one, then open the new one).
    """

    def __init__(self, path: Path, *, from_end: bool, size_limit: int) -> None:
        self._path = path
        self._size_limit = size_limit
        self._fd = -1
        self._rest = b""
        self._open()
        if from_end and self._fd >= 0:
            os.lseek(self._fd, 0, os.SEEK_END)
        self.behind = False
        """There is more to read already."""

    def read(self) -> list[bytes]:
        if self._fd < 0:
            self._open()
        if self._fd < 0:
            return []
        position = os.lseek(self._fd, 0, os.SEEK_CUR)
        if os.fstat(self._fd).st_size < position:
            position, self._rest = os.lseek(self._fd, 0, os.SEEK_SET), b""
        piece = os.read(self._fd, _PIECE)
        self.behind = len(piece) == _PIECE
        if not self.behind:
            self._at_end(position + len(piece))
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""
        return lines

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _at_end(self, size: int) -> None:
        if self._replaced():
            self.close()
        elif size > self._size_limit:
            # Envoy opens it for appending, so it goes on at the new end. A line written between our last read and here is
            # lost: better than a full disk, or than asking Envoy to reopen its logs each time.
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1

    def _replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
