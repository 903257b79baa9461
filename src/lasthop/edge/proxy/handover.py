"""Leaves proxies to the next Lasthop, for a limited time: a file says so until that one comes.

a Lasthop ends ── leave() ──> RUN_DIR/left ──> the next one: taken()
                                   └──> nobody came in time: the caretaker ends the proxies (`lasthop stop`)
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "left"
DEFAULT_SECONDS: Final = 30
"""That proxies which were left serve on without a Lasthop."""


class Left(msgspec.Struct, frozen=True):
    token: str
    """Tells this handover from a later one of the same folder."""
    until: float
    """Unix time at which the proxies are drained if no Lasthop has come."""


def leave(run_dir: Path, seconds: float) -> Left:
    """Writes that the proxies are left to the next Lasthop. Raises OSError."""
    left = Left(secrets.token_hex(8), time.time() + seconds)
    written = run_dir / f"{FILE}.{os.getpid()}"
    written.write_bytes(msgspec.json.encode(left))
    written.rename(run_dir / FILE)
    return left


def left(run_dir: Path) -> Left | None:
    """Returns what was left, if nobody has taken it."""
    try:
        return msgspec.json.decode((run_dir / FILE).read_bytes(), type=Left)
    except (OSError, msgspec.MsgspecError):
        return None


def taken(run_dir: Path) -> None:
    """Removes the file: a Lasthop is there again."""
    (run_dir / FILE).unlink(missing_ok=True)
