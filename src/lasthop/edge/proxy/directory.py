"""Manages the files of one Gateway's Envoy: `RUN_DIR/HASH/`, accessible only to the user that runs it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lasthop.edge.proxy.binary import Envoy

_SOCKET_PATH_LIMIT: Final = 107
"""Bytes; the kernel's limit for a unix socket's path."""

_LOG_LIMIT: Final = 10 * 1024 * 1024
_LOG_TAIL: Final = 5


class RunDirUnusable(Exception):
    """The run directory cannot be used. The text contains the reason and the remedy."""


class RunDirLocked(RunDirUnusable):
    """Another Lasthop uses this directory. `pid` is its process, or 0 if unknown."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        owner = f"Another Lasthop (pid {pid})" if pid else "Another Lasthop"
        super().__init__(f"{owner} is running with {path}. Stop it, or choose another run directory.")


def folder_name(gateway: str) -> str:
    """Returns a hash, because unix socket paths are short and Gateway names are long."""
    return hashlib.blake2b(gateway.encode(), digest_size=6).hexdigest()


class ProxyDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.admin_socket = path / "admin.sock"
        self.log = path / "envoy.log"
        self.access_log = path / "access.log"
        self.samples = path / "samples.log"

    def make(self) -> None:
        length = len(os.fsencode(self.path / "admin.4194304.sock"))
        if length > _SOCKET_PATH_LIMIT:
            raise RunDirUnusable(
                f"{self.path} is too long a path for a unix socket ({length} bytes; the limit is {_SOCKET_PATH_LIMIT}). "
                "Choose a run directory with a shorter path."
            )
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise RunDirUnusable(f"Cannot use {self.path}: {error.strerror}. Choose another run directory.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory, because two Lasthops would restart each other's Envoy. The kernel releases the lock when this
        process dies."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(fd, 32)
                raise RunDirLocked(self.path, int(holder) if holder.isdigit() else 0) from None
            os.ftruncate(fd, 0)
            os.write(fd, str(os.getpid()).encode())
            yield
        finally:
            os.close(fd)

    def write_bootstrap(self, envoy: Envoy, content: bytes) -> Path:
        """Writes the bootstrap into a file whose name is a hash of its content and of the binary, so that equal command lines
        mean equal Envoys."""
        identity = hashlib.blake2b(content + str(envoy).encode(), digest_size=6).hexdigest()
        path = self.path / f"bootstrap-{identity}.json"
        # Envoy reads it only at start-up, so the files of other Envoys are no longer needed.
        for old_bootstrap in self.path.glob("bootstrap-*"):
            old_bootstrap.unlink()
        path.write_bytes(content)
        return path

    def set_aside_admin_socket(self, pid: int) -> None:
        """Renames the admin socket before a new Envoy takes its name, so that the old Envoy stays reachable."""
        with contextlib.suppress(FileNotFoundError):
            self.admin_socket.rename(self.admin_socket_set_aside(pid))

    def admin_socket_set_aside(self, pid: int) -> Path:
        return self.path / f"admin.{pid}.sock"

    def log_size(self) -> int:
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0

    def log_tail(self, since: int) -> tuple[str, ...]:
        """Returns the last lines that Envoy logged after byte `since`, which contain the reason of its exit."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(since, self.log_size() - 16_384))
                lines = log.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ()
        return tuple(line for line in lines if line.strip())[-_LOG_TAIL:]

    def truncate_log(self) -> None:
        """Keeps the log from filling the disk. Envoy appends, so it continues at the new end."""
        if self.log_size() > _LOG_LIMIT:
            os.truncate(self.log, 0)
