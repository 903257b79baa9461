"""Where a running gateway keeps its sockets and state, so that other commands find it."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import click

ADMIN_SOCKET = "admin.sock"


def runtime_root() -> Path:
    """Short, because unix sockets live in it, and ours alone, because whoever can write there is the control plane."""
    if override := os.environ.get("LASTHOP_RUN_DIR"):
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/lasthop")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "lasthop"
    return Path(tempfile.gettempdir()) / f"lasthop-{os.geteuid()}"


def state_root() -> Path:
    base = os.environ.get("LASTHOP_STATE_DIR") or os.environ.get("XDG_STATE_HOME")
    return Path(base) / "lasthop" if base else Path.home() / ".local" / "state" / "lasthop"


def of_folder(root: Path, folder: Path) -> Path:
    """The place that belongs to one folder of objects."""
    return root / hashlib.blake2b(str(folder.resolve()).encode(), digest_size=5).hexdigest()


def private(folder: Path) -> Path:
    """Makes the folder, for this user only; refuses one that somebody else has prepared."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise click.ClickException(f"cannot make {folder}: {error.strerror}") from error
    for path, info in ((folder, found), (folder.parent, folder.parent.lstat())):
        if info.st_uid not in (0, os.geteuid()) or not stat.S_ISDIR(info.st_mode):
            raise click.ClickException(f"{path} belongs to somebody else; set LASTHOP_RUN_DIR to a folder of your own")
    folder.chmod(0o700)
    return folder


def running(folder: Path) -> Path:
    """The admin socket of the gateway for this folder."""
    found = of_folder(runtime_root(), folder) / ADMIN_SOCKET
    if not found.exists():
        raise click.ClickException(f"no gateway runs on {folder}; start one with: lasthop run {folder}")
    return found


def all_running() -> list[Path]:
    """The admin sockets that somebody listens on; one that was killed leaves its socket behind."""
    return [path for path in sorted(runtime_root().glob(f"*/{ADMIN_SOCKET}")) if _listens(path)]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.settimeout(1)
        try:
            tried.connect(str(path))
        except OSError:
            return False
    return True
