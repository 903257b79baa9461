"""Keeps the verification memory in a file, so that Lasthop notices a policy that was deleted while it was stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lasthop.engine.memory.codec import Damaged, Encoder, Memory, decode

FILE: Final = "verification.json"
SHARE: Final = 1000
"""Minimum pause between writes as a multiple of the CPU time of a write. Each write covers the whole file. Without the pause,
the cost of an edit would grow with the number of ports."""
LONGEST_PAUSE: Final = 30.0
"""Maximum pause in seconds."""


def pause(interval: float, took: float) -> float:
    """Returns the seconds until the next write, after one that took so much CPU time."""
    return max(interval, min(SHARE * took, LONGEST_PAUSE))


def load(path: Path) -> Memory | Damaged | None:
    """Reads the memory; returns None if the file does not exist."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Damaged(f"cannot be read: {error.strerror}")


def set_aside(path: Path) -> str:
    """Renames a file that cannot be decoded, because its entries are evidence. Returns a clause about it; empty if that
    failed."""
    damaged = path.with_suffix(".damaged")
    try:
        os.replace(path, damaged)
    except OSError:
        return ""
    return f"it is kept as {damaged.name}"


Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Returns a value that changes with every write of the file; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def save(path: Path, memory: Memory, encode: Encoder) -> Stamp | None:
    """Writes the whole file or nothing, and returns its stamp. Raises `OSError`."""
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_bytes(encode(memory))
    new_stamp = stamp(written)  # before the rename: from then on others may write it
    os.replace(written, path)
    return new_stamp
