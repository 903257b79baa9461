"""Reads a file that another user may have prepared: it may be a link, a pipe that never ends, or huge."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read(path: Path, limit: int) -> bytes:
    """Returns at most `limit` bytes of a regular file. Raises OSError, also for all other kinds of files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(limit)
