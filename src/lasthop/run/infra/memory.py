"""Keeps what is remembered in a file, so that a policy which is deleted while Lasthop is stopped is noticed too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lasthop.engine.memory.codec import Damaged, Encoder, Memory, decode

FILE: Final = "verification.json"
SHARE: Final = 1000
"""How many times as long as encoding took is waited at least until the next time: it is written whole, so with thousands of
ports not as often, or an edit would cost more the more of them there are ..."""
LONGEST_PAUSE: Final = 30.0
"""... but after these seconds all the same."""


def pause(interval: float, took: float) -> float:
    """Returns the seconds until the next write, after one that took so long."""
    return max(interval, min(SHARE * took, LONGEST_PAUSE))


def load(path: Path) -> Memory | Damaged | None:
    """Returns None if there is no such file."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Damaged(f"cannot be read: {error.strerror}")


Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Returns what changes whenever the file is written; None if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def save(path: Path, memory: Memory, encode: Encoder) -> Stamp | None:
    """Writes the whole file or nothing, and returns its stamp. Raises `OSError`."""
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_bytes(encode(memory))
    found = stamp(written)  # before it has its name: from then on others may write it
    os.replace(written, path)
    return found
