"""The Envoy of one Gateway: started or taken over, watched, restarted, ended with a drain.

run() ── equal Envoy runs already? ── yes ──> adopt ──┐
           │ no                                       ├──> watch ──> it ends ──> pause, start again
           └─> start ── another one ran? ─────────────┘        └──> stop(): drain, end, return
                          └─> when the new one serves: drain and end the old one
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from lasthop.proxy import launch
from lasthop.proxy.admin import Admin
from lasthop.proxy.drain import end
from lasthop.proxy.find import Envoy
from lasthop.proxy.folder import Folder, FolderHeld, folder_name
from lasthop.proxy.running import Running, find_running

GRACE_SECONDS: Final = 10.0

_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
_STABLE_SECONDS: Final = 30.0
"""An Envoy that has lived this long is restarted without a pause again."""


class Started(msgspec.Struct, frozen=True):
    gateway: str
    pid: int
    adopted: bool
    """It was running already, left by an earlier Lasthop."""

    def __str__(self) -> str:
        return f"Gateway {self.gateway}: Envoy {'found running' if self.adopted else 'started'} (pid {self.pid})"


class Ended(msgspec.Struct, frozen=True):
    """It ended without being asked to."""

    gateway: str
    reason: str
    log: tuple[str, ...]
    """Its last words."""
    retry_in: float

    def __str__(self) -> str:
        again = f"starting again in {self.retry_in:g} s" if self.retry_in else "starting again"
        return "\n  ".join((f"Gateway {self.gateway}: Envoy {self.reason}, {again}", *self.log))


Event = Started | Ended


class Proxy:
    """Files are in `run_dir/HASH/` (see `folder`); the path must be short, because unix sockets are in it."""

    def __init__(
        self,
        gateway: str,
        envoy: Envoy,
        *,
        run_dir: Path,
        xds_socket: Path,
        report: Callable[[Event], None],
        concurrency: int | None = None,
    ) -> None:
        self.gateway = gateway
        self.folder = Folder(run_dir.absolute() / folder_name(gateway))
        self.admin = Admin(self.folder.admin_socket)
        self._envoy = envoy
        self._xds_socket = xds_socket.absolute()
        self._report = report
        self._concurrency = concurrency or len(os.sched_getaffinity(0))
        self._current: Running | None = None
        self.grace = GRACE_SECONDS
        """Seconds that an Envoy which is to end may finish its requests."""
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Proxy {self.gateway}: {self._current or 'no Envoy'}{', stopping' if self._stopping.is_set() else ''}>"

    @property
    def pid(self) -> int | None:
        return self._current.pid if self._current and self._current.alive else None

    def stop(self, grace: float | None = None) -> None:
        """Ask `run` to drain and end Envoy and to return. Asked again, or without grace: at once."""
        self.grace = self.grace if grace is None else grace
        if self._stopping.is_set() or self.grace <= 0:
            self._at_once.set()
        self._stopping.set()

    async def run(self) -> None:
        """Lives until `stop` is called. Cancelled, it leaves Envoy serving, as when Lasthop dies.

        Raises `FolderUnusable` at the start, or never.
        """
        self.folder.make()
        while not self._stopping.is_set():
            try:
                with self.folder.held():
                    return await self._run()
            except FolderHeld as held:
                # A Gateway that was deleted and comes back while its last Envoy still drains.
                if held.pid != os.getpid():
                    raise
            await self._pause(0.05)

    async def _run(self) -> None:
        content = launch.make_bootstrap(self.gateway, self.folder, self._xds_socket)
        command = launch.command(self._envoy, self.folder.write_bootstrap(self._envoy, content), self._concurrency)
        others = find_running(self.folder.path)
        self._current = await self._adoptable(others, command)
        if self._current is not None:
            others.remove(self._current)
        elif others:
            self.folder.set_aside_admin_socket(others[-1].pid)
        try:
            async with asyncio.TaskGroup() as group:
                for other in others:
                    group.create_task(self._retire(other))
                group.create_task(self._supervise(command))
        finally:
            for running in (*others, self._current):
                if running is not None:
                    running.close()

    async def _adoptable(self, found: list[Running], command: list[str]) -> Running | None:
        """The newest, if it is what we would start. Not one whose drain was interrupted: it accepts nobody any more."""
        if not found or found[-1].args != tuple(command[1:]) or await self.admin.state() == "DRAINING":
            return None
        return found[-1]

    async def _supervise(self, command: list[str]) -> None:
        pauses = 0
        while not self._stopping.is_set():
            began, words = time.monotonic(), self.folder.log_size()
            adopted = self._current is not None
            reason = self._start(command)
            if self._current is not None:
                self._report(Started(self.gateway, self._current.pid, adopted))
                await self._watch(self._current)
                if self._stopping.is_set():
                    break
                reason = _how(self._current.exit_code())
                self._current.close()
                self._current = None
            pauses = 0 if time.monotonic() - began > _STABLE_SECONDS else pauses
            pause = _PAUSES[min(pauses, len(_PAUSES) - 1)]
            pauses += 1
            self._report(Ended(self.gateway, reason, self.folder.last_log_lines(words), pause))
            await self._pause(pause)
        if self._current is not None:
            await end(self._current, self.admin, self.grace, self._at_once)

    def _start(self, command: list[str]) -> str:
        """Unless one is there. The answer is why it could not."""
        if self._current is None:
            try:
                self._current = launch.start(command, self.folder)
            except OSError as error:
                return f"does not start: {error}"
        return ""

    async def _watch(self, running: Running) -> None:
        """Until it ends or we are to stop."""
        async with asyncio.TaskGroup() as group:
            stop = group.create_task(self._stopping.wait())
            gone = group.create_task(running.gone())
            while not stop.done() and not gone.done():
                await asyncio.wait((stop, gone), timeout=60, return_when=asyncio.FIRST_COMPLETED)
                self.folder.cut_log()
            stop.cancel()
            gone.cancel()

    async def _retire(self, old: Running) -> None:
        """End an Envoy with other settings, but not before the new one serves in its place."""
        socket = self.folder.admin_socket_set_aside(old.pid)
        while old.alive and not self._stopping.is_set() and not await self.admin.ready():
            await self._pause(0.1)
        await end(old, Admin(socket), self.grace, self._at_once)
        socket.unlink(missing_ok=True)

    async def _pause(self, seconds: float) -> None:
        """Pause, but not when we are to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _how(code: int | None) -> str:
    if code is None:
        return "has ended"
    return f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"
