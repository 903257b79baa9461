"""Creates the socket file: in a directory of its own, for its owner only, and never taken from a running server."""

from __future__ import annotations

import contextlib
import socket
import stat
from pathlib import Path
from typing import Final

MAX_PATH: Final = 107
"""sun_path holds 108 bytes with its terminating zero; gRPC only says that it could not bind."""


def claim(path: Path) -> None:
    """Prepares the path for a server to bind. A socket left by a crash is removed."""
    if len(bytes(path)) > MAX_PATH:
        raise ValueError(f"{path}: a unix socket's path may have {MAX_PATH} bytes; choose a shorter directory")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{path}: exists and is not a socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(f"{path}: another process is serving on it")


def release(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
