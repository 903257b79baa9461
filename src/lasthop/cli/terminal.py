"""The terminal: how wide it is, if there is one."""

from __future__ import annotations

import shutil
import sys

PIPED = 100_000
"""A width that never breaks a line: programs read lines."""


def width() -> int:
    if not sys.stdout.isatty():
        return PIPED
    return max(40, shutil.get_terminal_size((100, 24)).columns)
