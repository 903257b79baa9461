"""Prints the access log on a separate thread: a slow or stopped reader of standard output must not stop the gateway."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from lasthop.base.text import logs, terminal
from lasthop.base.text.logs import LOG
from lasthop.cli.render.request_lines import JsonLines, RequestLines, TextLines
from lasthop.edge.proxy.entry import AccessLogEntry

STANDARD_OUTPUT: Final = 1
MAX_QUEUED: Final = 2_000
"""Entries that may wait to be printed; more are dropped and counted."""
DROP_NOTICE_SECONDS: Final = 10.0
"""Seconds between two messages about dropped entries."""
FLUSH_TIMEOUT: Final = 1.0
"""Seconds to print the waiting entries at exit."""


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


class AccessLogPrinter:
    """Calls `dropped` with the number of dropped entries when the queue has room again, and every
    `DROP_NOTICE_SECONDS` until then: a stopped reader may never resume."""

    def __init__(
        self,
        fd: int,
        lines: RequestLines,
        dropped: Callable[[int], None],
        flush_timeout: float = FLUSH_TIMEOUT,
        encode: Callable[[str], bytes] = _utf8,
    ) -> None:
        self._fd, self._lines, self._tell, self._flush_timeout, self._encode = fd, lines, dropped, flush_timeout, encode
        self._entries: queue.Queue[AccessLogEntry | None] = queue.Queue(MAX_QUEUED)
        self._dropped, self._since = 0, 0.0
        self._thread: threading.Thread | None = None

    def __call__(self, entry: AccessLogEntry) -> None:
        if entry.quiet:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._print, daemon=True)
            self._thread.start()
        try:
            self._entries.put_nowait(entry)
        except queue.Full:
            now = time.monotonic()
            if not self._dropped:
                self._since = now
            self._dropped += 1
            if now - self._since < DROP_NOTICE_SECONDS:
                return
        if self._dropped:
            self._tell(self._dropped)
            self._dropped = 0

    def close(self) -> None:
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._entries.put(None, timeout=self._flush_timeout)
                self._thread.join(self._flush_timeout)

    def _print(self) -> None:
        # BrokenPipeError: the reader is gone.
        with contextlib.suppress(OSError):
            while True:
                deadline = self._lines.deadline
                try:
                    entry = self._entries.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    self._write(self._lines.due(time.monotonic()))
                    continue
                if entry is None:
                    self._write(self._lines.due(time.monotonic(), last=True))
                    return
                self._write([*self._lines.due(time.monotonic()), *self._lines.lines(entry, time.monotonic())])

    def _write(self, lines: list[str]) -> None:
        """Writes without a buffer: a blocked write would hold the buffer's lock, which would keep the process from exiting."""
        data = self._encode("".join(f"{line}\n" for line in lines))
        while data:
            data = data[os.write(self._fd, data) :]


@contextlib.contextmanager
def printing(log_format: str) -> Iterator[AccessLogPrinter]:
    """Prints to standard output, in a format of `logs.FORMATS`; empty: text on a terminal, JSON elsewhere."""
    text = logs.is_text(log_format, sys.stdout.isatty())
    lines: RequestLines = TextLines(colours=terminal.coloured(sys.stdout)) if text else JsonLines()
    printer = AccessLogPrinter(
        STANDARD_OUTPUT,
        lines,
        lambda count: LOG.warning("standard output was not read quickly enough for the access log", lines_skipped=count),
        encode=(lambda shown: terminal.encoded(shown, sys.stdout)) if text else _utf8,
    )
    try:
        yield printer
    finally:
        printer.close()
