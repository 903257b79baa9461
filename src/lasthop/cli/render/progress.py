"""Shows the progress of long operations: on a terminal in a line that is overwritten, elsewhere in the log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final, Self

import click

from lasthop.base.text import terminal

BAR: Final = 24
PROGRESS_DELAY_SECONDS: Final = 1.0
"""Shorter operations show no progress."""
LOG_INTERVAL: Final = 5.0


class ProgressLine:
    """Shows the current step and its progress in one line of a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self.shown = terminal.moves(sys.stderr)
        self._last = 0.0
        self._stage = ""

    def __enter__(self) -> Self:
        return self

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.shown or (stage == self._stage and now - self._last < 0.1):
            return
        self._last, self._stage = now, stage
        filled = BAR * done // total if total else 0
        self._overwrite(f"{stage} [{'#' * filled}{'.' * (BAR - filled)}] {done}/{total}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.clear()

    def clear(self) -> None:
        if self.shown:
            self._overwrite("")

    def _overwrite(self, line: str) -> None:
        """Replaces the last line of the terminal. NO_COLOR does not concern the escape sequence that erases."""
        click.echo(f"\r\x1b[K{line}", err=True, nl=False, color=True)


class FolderProgress:
    """Shows how many files of a folder have been read, if that takes more than a moment."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._begun = time.monotonic()
        self._line = ProgressLine()
        self._next_log = 0.0

    def __call__(self, read: int, files: int) -> None:
        """Runs for each file, in the thread that reads them."""
        now = time.monotonic()
        if now - self._begun < PROGRESS_DELAY_SECONDS:
            return
        if read == files:
            self._line.clear()
            self._log.info("folder read", files=files, seconds=round(now - self._begun, 1))
        elif self._line.shown:
            self._line("reading files", read, files)
        elif now >= self._next_log:
            self._next_log = now + LOG_INTERVAL
            self._log.info("reading the folder", files_read=read, files=files)
