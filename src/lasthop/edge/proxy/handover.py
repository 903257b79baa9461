"""Leaves proxies running for the next Lasthop, for a limited time that a file records.

a Lasthop ends ── write_handover() ──> RUN_DIR/left ──> the next Lasthop: remove_handover()
                                            └──> none starts in time: the caretaker stops the proxies (`lasthop stop`)
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Final

import msgspec

from lasthop.base import foreign_file

FILE: Final = "left"
LARGEST: Final = 4096
"""Bytes."""
DEFAULT_SECONDS: Final = 30
"""Seconds for which proxies keep serving without a Lasthop."""


class Handover(msgspec.Struct, frozen=True):
    token: str
    """Distinguishes this handover from a later one of the same folder."""
    until: float
    """Unix time at which the proxies are drained unless a Lasthop has started."""


def write_handover(run_dir: Path, seconds: float) -> Handover:
    """Records that the proxies are left to the next Lasthop. Raises OSError."""
    handover = Handover(secrets.token_hex(8), time.time() + seconds)
    draft = run_dir / f"{FILE}.{os.getpid()}"
    draft.write_bytes(msgspec.json.encode(handover))
    draft.rename(run_dir / FILE)
    return handover


def read_handover(run_dir: Path) -> Handover | None:
    """Returns the pending handover, if any."""
    try:
        return msgspec.json.decode(foreign_file.read(run_dir / FILE, LARGEST), type=Handover)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def remove_handover(run_dir: Path) -> None:
    """Removes the file, because a Lasthop has taken the proxies over."""
    (run_dir / FILE).unlink(missing_ok=True)
