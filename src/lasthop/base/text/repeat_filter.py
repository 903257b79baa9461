"""Suppresses repeated messages."""

from __future__ import annotations

from collections.abc import Callable


class RepeatFilter:
    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.last = ""

    def __call__(self, text: str) -> None:
        """Writes the text unless it equals the last written one."""
        if text != self.last:
            self.last = text
            self._write(text)
