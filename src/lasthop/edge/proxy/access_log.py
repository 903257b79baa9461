"""Follows Envoy's access log as it grows, within a budget. Clients can make any number of requests fail, so the budget limits
the log's share of the event loop and of the disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from lasthop.edge.proxy.entry import AccessLogEntry, parse
from lasthop.edge.proxy.failures import explained

SIZE_LIMIT: Final = 10 * 1024 * 1024
"""Bytes at which the file is truncated. Unread lines are skipped."""
BUDGET: Final = 1024 * 1024
"""Bytes read per second, some 1,500 lines: a few percent of a core for each Gateway during such a flood."""
POLL_INTERVAL: Final = 0.2
REPORT_INTERVAL: Final = 10.0
"""Seconds between two reports of skipped lines."""
_LONGEST_LINE: Final = 256 * 1024
_PIECE: Final = 64 * 1024
"""Bytes read between two turns of the event loop: some 100 lines, a few milliseconds."""
_COUNTED: Final = 16 * 1024 * 1024
"""Skipped bytes in which lines are counted, which takes about 10 ms; beyond that only bytes are counted."""


class SkippedLines(msgspec.Struct, frozen=True):
    """Counts skipped lines and bytes."""

    lines: int = 0
    bytes: int = 0

    def __add__(self, other: SkippedLines) -> SkippedLines:
        return SkippedLines(self.lines + other.lines, self.bytes + other.bytes)


def _ignore(lines: float) -> None:
    pass


async def follow(
    path: Path,
    *,
    from_end: bool,
    skipped: Callable[[SkippedLines], None],
    written: Callable[[float], None] = _ignore,
    size_limit: int = SIZE_LIMIT,
) -> AsyncGenerator[AccessLogEntry, None]:
    """Yields each new entry, explained, until cancelled, and then the last entries.

    `from_end` skips the present content of the file, which has been reported if Envoy was adopted. `written` receives the
    number of new lines, including lines that are read later or never.
    """
    reader = AccessLogReader(path, from_end=from_end, written=written, size_limit=size_limit)
    try:
        while True:
            for entry in reader.read():
                yield entry
            if lines := reader.skipped(time.monotonic()):
                skipped(lines)
            # Sleeps even if there is more to read, because an async generator's `yield` alone gives no other task a turn.
            await asyncio.sleep(reader.pause)
    except asyncio.CancelledError:
        # An Envoy that has exited wrote its last requests after the last read. The end of a drain cut these requests off.
        for entry in reader.remaining():
            yield entry
        raise
    finally:
        reader.close()


class AccessLogReader:
    """Reads entries piece by piece, and computes the pause before the next piece."""

    def __init__(
        self, path: Path, *, from_end: bool, written: Callable[[float], None] = _ignore, size_limit: int = SIZE_LIMIT
    ) -> None:
        self._tail, self._written = Tail(path, from_end=from_end, size_limit=size_limit), written
        self._unreported = SkippedLines()
        self._reported_at = -REPORT_INTERVAL

    @property
    def pause(self) -> float:
        return _PIECE / BUDGET if self._tail.behind else POLL_INTERVAL

    def read(self) -> list[AccessLogEntry]:
        entries = [entry for line in self._tail.read() if (entry := parse(line)) is not None]
        self._written(self._tail.take_written())
        return [explained(entry) for entry in entries]

    def remaining(self) -> Iterator[AccessLogEntry]:
        """Yields the remaining entries of the file, at most one second's budget, because the caller waits for the end."""
        for _ in range(BUDGET // _PIECE):
            yield from self.read()
            if not self._tail.behind:
                return

    def skipped(self, now: float) -> SkippedLines | None:
        """Returns the lines skipped since the last report; None if there are none or the last report is too recent."""
        self._unreported += self._tail.take_skipped()
        if not self._unreported.bytes or now - self._reported_at < REPORT_INTERVAL:
            return None
        report, self._unreported, self._reported_at = self._unreported, SkippedLines(), now
        return report

    def close(self) -> None:
        self._tail.close()


class Tail:
    """Reads the lines added to a file since the last read, at most one piece at a time.

    There are four cases besides growth: the file does not exist (yet), it was truncated (continue at its start), it was
    replaced by another one (finish the old one, then open the new one), or it is too large (truncate it, read or not).
    """

    def __init__(self, path: Path, *, from_end: bool, size_limit: int) -> None:
        self._path = path
        self._size_limit = size_limit
        self._fd = -1
        self._rest = b""
        self._skipped = SkippedLines()
        self._passed, self._reported, self._length = 0, 0.0, 500.0
        """Lines read or skipped; lines reported as written; average bytes of a line."""
        self._open()
        if from_end and self._fd >= 0:
            os.lseek(self._fd, 0, os.SEEK_END)
        self.behind = False
        """More can be read at once."""

    def read(self) -> list[bytes]:
        if self._fd < 0:
            self._open()
        if self._fd < 0:
            return []
        if os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            self._rest = b""
            os.lseek(self._fd, 0, os.SEEK_SET)
        piece = os.read(self._fd, _PIECE)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""
        self._passed += len(lines)
        self._length = len(piece) / len(lines) if lines else self._length
        self.behind = len(piece) == _PIECE
        too_large = os.fstat(self._fd).st_size > self._size_limit
        if self.behind and too_large:
            self._skip()
        if not self.behind:
            self._at_end(too_large)
        return lines

    def take_skipped(self) -> SkippedLines:
        """Returns the lines skipped since the last call."""
        taken, self._skipped = self._skipped, SkippedLines()
        return taken

    def take_written(self) -> float:
        """Returns the number of lines added since the last call: the lines read or skipped, and an estimate of the unread
        lines."""
        ahead = os.fstat(self._fd).st_size - os.lseek(self._fd, 0, os.SEEK_CUR) if self._fd >= 0 else 0
        previous, self._reported = self._reported, max(self._reported, self._passed + ahead / self._length)
        return self._reported - previous

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _skip(self) -> None:
        begin, lines = os.lseek(self._fd, 0, os.SEEK_CUR), 0
        for _ in range(_COUNTED // _PIECE):
            piece = os.read(self._fd, _PIECE)
            lines += piece.count(b"\n")
            if len(piece) < _PIECE:
                break
        end = os.lseek(self._fd, 0, os.SEEK_END)
        self._skipped += SkippedLines(lines, len(self._rest) + end - begin)
        self._passed += lines
        self._rest, self.behind = b"", False

    def _at_end(self, too_large: bool) -> None:
        if self._replaced():
            self.close()
        elif too_large:
            # Envoy appends, so it continues at the new end. A line written since our last read is lost, which is better than a
            # full disk, or than making Envoy reopen its logs each time.
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1

    def _replaced(self) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False
