"""Lets a process of another user reach Python and the clone, which may be below a folder that only root can enter."""

from __future__ import annotations

import sys
from pathlib import Path

CLONE = Path(__file__).parents[1]


def _closed(path: Path) -> Path | None:
    """Returns the outermost folder of a path that other users cannot enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def mounts(spare: Path) -> list[str]:
    """Returns shell commands for a mount namespace: each closed folder is replaced by one that contains only the required
    paths."""
    hidden = [(path, closed) for path in (Path(sys.base_prefix), CLONE) if (closed := _closed(path))]
    folders = dict.fromkeys(closed for _, closed in hidden)
    steps = []
    for number, (path, _) in enumerate(hidden):
        steps += [f"mkdir {spare}/{number}", f"mount --bind {path} {spare}/{number}"]
    steps += [f"mount -t tmpfs -o mode=755 tmpfs {folder}" for folder in folders]
    for number, (path, _) in enumerate(hidden):
        steps += [f"mkdir -p {path}", f"mount --bind {spare}/{number} {path}"]
    return steps + [f"mount -o remount,ro {folder}" for folder in folders]


def wrapper(steps: list[str]) -> tuple[str, ...]:
    """Returns a command that runs the command after it in a mount namespace, once the steps have succeeded."""
    return ("unshare", "--mount", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh")
