"""Prints failed requests on a thread of its own: a slow or stopped reader of standard output must not stop the gateway."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from lasthop import logs
from lasthop.proxy.entry import AccessLogEntry

STANDARD_OUTPUT: Final = 1
WAITING: Final = 2_000
"""Lines that may wait to be printed; more are dropped and counted."""
PATIENCE: Final = 1.0
"""Seconds to print the waiting lines at exit."""


class FailedRequestPrinter:
    """Calls `dropped` with the number of dropped lines once there is room again."""

    def __init__(self, fd: int, dropped: Callable[[int], None], patience: float = PATIENCE) -> None:
        self._fd, self._tell, self._patience = fd, dropped, patience
        self._lines: queue.Queue[bytes | None] = queue.Queue(WAITING)
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def __call__(self, entry: AccessLogEntry) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._print, daemon=True)
            self._thread.start()
        fields = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
        try:
            self._lines.put_nowait(msgspec.json.encode(fields) + b"\n")
        except queue.Full:
            self._dropped += 1
            return
        if self._dropped:
            self._tell(self._dropped)
            self._dropped = 0

    def close(self) -> None:
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._lines.put(None, timeout=self._patience)
                self._thread.join(self._patience)

    def _print(self) -> None:
        """Writes without a buffer: the lock of one, held by a blocked write, would keep the process from exiting."""
        # BrokenPipeError: the reader is gone.
        with contextlib.suppress(OSError):
            while (line := self._lines.get()) is not None:
                while line:
                    line = line[os.write(self._fd, line) :]


@contextlib.contextmanager
def printing() -> Iterator[FailedRequestPrinter]:
    log = logs.get()
    printer = FailedRequestPrinter(
        STANDARD_OUTPUT,
        lambda lines: log.warning("standard output was not read quickly enough for all failed requests", lines_skipped=lines),
    )
    try:
        yield printer
    finally:
        printer.close()
