"""Runs child processes that never outlive this process: each dies with its parent, and is stopped by its own id."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills this process when the thread that started it ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def check(*command: str, stdin: str = "") -> str:
    """Runs a command to its end; its output is the error if it fails."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate(stdin.encode())
    if process.returncode:
        raise ChildError(f"`{' '.join(command)}` ended with {process.returncode}: {output.decode(errors='replace').strip()}")
    return output.decode()


class ChildError(Exception):
    pass


class Server:
    """A long-running program with its output in a log file; it can be killed and started again (fault tests do)."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name, self.command, self.log, self.env = name, [str(part) for part in command], log, env
        self.process: asyncio.subprocess.Process | None = None
        self.asked_to_end = False

    def __repr__(self) -> str:
        return f"<{self.name} pid={self.pid}>" if self.running else f"<{self.name} not running>"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    async def start(self) -> None:
        self.asked_to_end = False
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    async def stop(self, seconds: float = 5) -> None:
        self.asked_to_end = True
        if self.process is None or not self.running:
            return
        self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        self.asked_to_end = True
        if self.process is not None and self.running:
            self.process.kill()
            await self.process.wait()

    def log_tail(self, lines: int = 15) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
