"""Controls one running Envoy process by its pidfd, so that no signal or wait reaches another process with the same pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Final

VISIBLE_WITHIN_MS: Final = 1_000


class EnvoyHandle:
    """Controls a child process, or an Envoy that an earlier Lasthop left running."""

    def __init__(self, pid: int, pidfd: int, args: tuple[str, ...]) -> None:
        self.pid = pid
        self.args = args
        """The command line without the name of the binary."""
        self._pidfd = pidfd

    def __repr__(self) -> str:
        return f"<Envoy {self.pid}, {'running' if self.alive else 'exited'}>"

    @property
    def alive(self) -> bool:
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def signal(self, number: signal.Signals) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def wait(self, limit: float | None = None) -> bool:
        """Waits at most `limit` seconds for the exit; returns whether the process has exited."""
        if not self.alive:
            return True
        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        # A duplicate, because the loop allows one reader for each descriptor.
        watched = os.dup(self._pidfd)
        loop.add_reader(watched, exited.set)
        try:
            async with asyncio.timeout(limit):
                await exited.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(watched)
            os.close(watched)
        return True

    def exit_code(self) -> int | None:
        """Returns the exit code (negative: the signal); None if the process runs or is not our child. Reaps a dead child."""
        try:
            info = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def until_visible(self) -> None:
        """Waits until the kernel shows the command line by which the next Lasthop finds the process. On a busy machine it is
        empty for up to some 20 ms after the start."""
        for _ in range(VISIBLE_WITHIN_MS):
            if not self.alive or _command_line(Path(f"/proc/{self.pid}")):
                return
            time.sleep(0.001)

    def close(self) -> None:
        """Closes the pidfd. An Envoy that runs keeps running."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def find_envoys(folder: Path, uid: int | None = None) -> list[EnvoyHandle]:
    """Returns this user's Envoys, or those of `uid`, whose bootstrap is in `folder` or below, oldest first.

    It reads their command lines, because a pid file can be stale, lost, or contain the pid of another process.
    """
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    owner = os.getuid() if uid is None else uid
    handles = [handle for pid in pids if (handle := _open(pid, folder, owner)) is not None]
    return sorted(handles, key=lambda handle: (_start_time(handle.pid), handle.pid))


def _open(pid: int, folder: Path, owner: int) -> EnvoyHandle | None:
    process = Path(f"/proc/{pid}")
    try:
        if process.stat().st_uid != owner or not _is_ours(_command_line(process), folder):
            return None
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    # Read again, because only an open pidfd guarantees that the pid still means the same process.
    with contextlib.suppress(OSError):
        command = _command_line(process)
        handle = EnvoyHandle(pid, pidfd, command[1:])
        if _is_ours(command, folder) and handle.alive:
            return handle
    os.close(pidfd)
    return None


def _command_line(process: Path) -> tuple[str, ...]:
    return tuple(os.fsdecode(arg) for arg in (process / "cmdline").read_bytes().split(b"\0")[:-1])


def _is_ours(command: tuple[str, ...], folder: Path) -> bool:
    """Returns whether a command line belongs to our Envoy. `launch.command` puts the bootstrap first, unlike an editor or a
    `grep` on the same file."""
    return (
        len(command) > 4 and command[1] == "-c" and "--disable-hot-restart" in command and folder in Path(command[2]).parents
    )


def _start_time(pid: int) -> int:
    try:
        # The name in parentheses may contain any characters. The 3rd field follows it; the start time is the 22nd field.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0
