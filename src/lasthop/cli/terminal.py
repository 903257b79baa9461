"""The terminal: how wide it is, if there is one."""

from __future__ import annotations

import shutil
import sys

PIPED = 100_000
"""A width that never breaks a line: programs read lines."""


def printable(text: str) -> str:
    """What a stranger has written, a certificate's subject say, must not move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width() -> int:
    if not sys.stdout.isatty():
        return PIPED
    return max(40, shutil.get_terminal_size((100, 24)).columns)
