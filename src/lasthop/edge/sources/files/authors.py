"""Finds a file's last author: the author of its last commit if git tracks it and it is unmodified, otherwise its owner.

A repository may be hostile, because its configuration can name programs. So git runs without hooks, filters, helpers,
transports and the user's configuration, for two commands that need none of them, and never in another user's repository.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lasthop.edge.sources.files.folder import UnreadableFile, read

TIMEOUT: Final = 0.5
"""Seconds for one command. It blocks the source, but the edit has already taken effect."""
SILENCE: Final = 60.0
"""Seconds for which git is not run after one command exceeded `TIMEOUT`, or all commands together exceeded `BUDGET`."""
BUDGET: Final = 1.0
"""Seconds that many commands may accumulate, for example after an edit of a thousand files."""
SHARE: Final = 0.1
"""Share of the elapsed time by which the accumulated seconds decrease."""
REMEMBERED: Final = 1000
OPTIONS: Final = (
    *("--no-optional-locks", "--no-pager", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"),
    *("-c", "protocol.allow=never", "-c", "core.alternateRefsCommand=false"),
)
ENVIRONMENT: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
LAST_COMMIT: Final = (
    "log",
    "-1",
    "--no-show-signature",
    "--no-ext-diff",
    "--no-textconv",
    "-s",
    "--format=%h%x00%an%x00%ae%x00%cs",
)


class Authors:
    def __init__(self, git: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._git = shutil.which("git") if git is None else git
        self._clock, self._silent_until = clock, 0.0
        self._spent, self._last = 0.0, 0.0
        self._known: dict[tuple[Path, int], str] = {}

    def of(self, path: Path) -> str:
        """Returns a file's last author, as `Ann <ann@example.com>, commit 1a2b3c4 of 2026-11-18`; empty if unknown."""
        try:
            stamp = path.lstat().st_mtime_ns
        except OSError:
            stamp = 0
        if stamp and (cached := self._known.get((path, stamp))) is not None:
            return cached
        author = self._find(path)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[path, stamp] = author
        return author

    def _find(self, path: Path) -> str:
        owner = _owner(path)
        root = _repository(path.parent)
        if root is None or not self._git or self._clock() < self._silent_until:
            return owner
        relative = str(path.relative_to(root))
        commit = self._run(root, *LAST_COMMIT, "--", relative)
        if not commit:
            return owner
        committed = self._run(root, "rev-parse", "--verify", "--quiet", f"HEAD:{relative}") or ""
        if committed.strip() != _blob(path, len(committed.strip())):
            return f"{owner}, not committed" if owner else "an uncommitted edit"
        parts = commit.strip("\n").split("\0")
        if len(parts) != 4:
            return owner
        commit_id, name, mail, date = ("".join(filter(str.isprintable, part)) for part in parts)
        return f"{name} <{mail}>, commit {commit_id} of {date}"

    def _run(self, root: Path, *arguments: str) -> str | None:
        """Returns git's output; None if git fails or takes too long."""
        command = (self._git or "git", *OPTIONS, "-C", str(root), *arguments)
        environment = {**ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
        started = self._clock()
        try:
            process = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            self._silent_until = self._clock() + SILENCE
            return None
        except OSError:
            return None
        self._spend(started)
        return process.stdout.decode(errors="replace") if process.returncode == 0 else None

    def _spend(self, started: float) -> None:
        now = self._clock()
        self._spent = max(0.0, self._spent - SHARE * (started - self._last)) + now - started
        self._last = now
        if self._spent > BUDGET:
            self._silent_until = now + SILENCE


def _repository(folder: Path) -> Path | None:
    """Returns the folder of the repository if it and its data belong to us, because git reads its configuration there."""
    for parent in (folder, *folder.parents):
        try:
            data = os.lstat(f"{parent}/.git").st_uid
            owners = [os.stat(parent).st_uid, data]
        except OSError:
            continue
        return parent if owners == [os.geteuid()] * 2 else None
    return None


def _owner(path: Path) -> str:
    try:
        uid, owner_kind = path.stat().st_uid, "file owner"
    except OSError:
        try:
            uid, owner_kind = path.parent.stat().st_uid, "folder owner"
        except OSError:
            return ""
    try:
        return f"{owner_kind} {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"{owner_kind} {uid}"


def _blob(path: Path, length: int) -> str:
    """Returns git's object name of the file's content, with a hash of that length; empty if the file does not exist."""
    try:
        content, _ = read(path)  # neither waits for a pipe nor reads a device without end
    except FileNotFoundError:
        return ""
    except UnreadableFile as error:
        return str(error)
    hashed = hashlib.sha256 if length == 64 else hashlib.sha1
    return hashed(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
