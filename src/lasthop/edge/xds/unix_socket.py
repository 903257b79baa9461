"""Creates the server's unix socket file, private to its owner, and never replaces the socket of a running server."""

from __future__ import annotations

import contextlib
import socket
import stat
from pathlib import Path
from typing import Final

MAX_PATH: Final = 107
"""Bytes of a path: sun_path holds 108 with its terminating zero. gRPC's own error does not mention the length."""


def claim(path: Path) -> None:
    """Prepares the path so that a server can bind it, and removes a socket that a crash has left."""
    if len(bytes(path)) > MAX_PATH:
        raise ValueError(f"{path}: the path of a unix socket is limited to {MAX_PATH} bytes; choose a shorter directory")
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
    raise FileExistsError(f"{path}: another process is listening on this socket")


def release(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
