"""Tells something once, however often it is found."""

from __future__ import annotations

from collections.abc import Callable


class OnChange:
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.last = ""

    def __call__(self, text: str) -> None:
        """Tells it, unless it is what was told last."""
        if text != self.last:
            self.last = text
            self._tell(text)
