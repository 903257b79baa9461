"""Supervises the Envoy of one Gateway: starts or adopts it, watches it, restarts it, and finally drains it or leaves it
running.

run() ── equal Envoy runs already? ── yes ──> adopt ──┐
           │ no                                       ├──> watch ──> it exits ──> pause, start again
           └─> start ── another one ran? ─────────────┘        ├──> stop(): drain, terminate, return
                          │                                    └──> leave(): return
                          └─> when the new one serves: steer connections to it, drain and terminate the old one
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from lasthop.edge.proxy import launch, steering
from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirLocked, folder_name
from lasthop.edge.proxy.drain import GRACE_SECONDS, drain_and_terminate
from lasthop.edge.proxy.handle import EnvoyHandle, find_envoys
from lasthop.edge.slices import wait_for
from lasthop.engine.outputs.envoy.xds_cluster import LocalXds

BIND_SECONDS: Final = 5.0
"""Seconds in which a new Envoy should listen on all ports of the old one. It may lack some if the Gateway has changed."""
_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
_STABLE_SECONDS: Final = 30.0
"""Seconds after which an Envoy that exits is restarted without a pause again."""


class EnvoyStarted(msgspec.Struct, frozen=True):
    gateway: str
    pid: int
    adopted: bool
    """Envoy was already running, left by an earlier Lasthop."""

    def __str__(self) -> str:
        return f"Gateway {self.gateway}: Envoy {'found running' if self.adopted else 'started'} (pid {self.pid})"


class EnvoyExited(msgspec.Struct, frozen=True):
    """Envoy exited unexpectedly."""

    gateway: str
    reason: str
    log_tail: tuple[str, ...]
    retry_in: float

    def __str__(self) -> str:
        restart = f"restarting in {self.retry_in:g} s" if self.retry_in else "restarting"
        return "\n  ".join((f"Gateway {self.gateway}: Envoy {self.reason}, {restart}", *self.log_tail))


ProxyEvent = EnvoyStarted | EnvoyExited


class Proxy:
    """Supervises one Envoy with files in `run_dir/HASH/` (see `folder`). The path must be short, because it contains unix
    sockets."""

    def __init__(
        self,
        gateway: str,
        envoy: Envoy,
        *,
        run_dir: Path,
        xds_socket: Path,
        report: Callable[[ProxyEvent], None],
        concurrency: int | None = None,
    ) -> None:
        self.gateway = gateway
        self.folder = ProxyDirectory(run_dir.absolute() / folder_name(gateway))
        self.admin = Admin(self.folder.admin_socket)
        self._envoy = envoy
        self._xds_socket = xds_socket.absolute()
        self._report = report
        self._concurrency = concurrency or len(os.sched_getaffinity(0))
        self._current: EnvoyHandle | None = None
        self.grace = GRACE_SECONDS
        """Seconds in which Envoy can finish its requests before it is terminated."""
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._leaving = False

    def __repr__(self) -> str:
        return f"<Proxy {self.gateway}: {self._current or 'no Envoy'}{', stopping' if self._stopping.is_set() else ''}>"

    @property
    def pid(self) -> int | None:
        return self._current.pid if self._current and self._current.alive else None

    def stop(self, grace: float | None = None) -> None:
        """Makes `run` drain and terminate Envoy and return. A second call, or no grace, skips the drain."""
        self.grace = self.grace if grace is None else grace
        if self._stopping.is_set() or self.grace <= 0:
            self._at_once.set()
        self._stopping.set()

    def leave(self) -> None:
        """Makes `run` return and leave Envoy serving for the next Lasthop."""
        if not self._stopping.is_set():
            self._leaving = True
            self._stopping.set()

    async def run(self) -> None:
        """Supervises until `stop` or `leave` is called. On cancellation it leaves Envoy serving, as when Lasthop dies.

        Raises `RunDirUnusable`, at the start only.
        """
        self.folder.make()
        while not self._stopping.is_set():
            try:
                with self.folder.locked():
                    return await self._run()
            except RunDirLocked as locked:
                # A Gateway was deleted and created again while its last Envoy still drains.
                if locked.pid != os.getpid():
                    raise
            await self._pause(0.05)

    async def _run(self) -> None:
        content = launch.make_bootstrap(self.gateway, self.folder, LocalXds(self._xds_socket))
        command = launch.command(self._envoy, self.folder.write_bootstrap(self._envoy, content), self._concurrency)
        old_envoys = find_envoys(self.folder.path)
        self._current = await self._adoptable(old_envoys, command)
        if self._current is not None:
            old_envoys.remove(self._current)
        elif old_envoys:
            self.folder.set_aside_admin_socket(old_envoys[-1].pid)
        try:
            async with asyncio.TaskGroup() as group:
                for old_envoy in old_envoys:
                    group.create_task(self._retire(old_envoy))
                group.create_task(self._supervise(command))
        finally:
            for handle in (*old_envoys, self._current):
                if handle is not None:
                    handle.close()

    async def _adoptable(self, handles: list[EnvoyHandle], command: list[str]) -> EnvoyHandle | None:
        """Returns the newest Envoy if it has the right command line. An Envoy whose drain was interrupted is not adopted,
        because it accepts no connections."""
        if not handles or handles[-1].args != tuple(command[1:]) or await self.admin.state() == "DRAINING":
            return None
        return handles[-1]

    async def _supervise(self, command: list[str]) -> None:
        pauses = 0
        while not self._stopping.is_set():
            started, log_size = time.monotonic(), self.folder.log_size()
            adopted = self._current is not None
            reason = self._start(command)
            if self._current is not None:
                self._report(EnvoyStarted(self.gateway, self._current.pid, adopted))
                await self._watch(self._current)
                if self._stopping.is_set():
                    break
                reason = _exit_reason(self._current.exit_code())
                self._current.close()
                self._current = None
            pauses = 0 if time.monotonic() - started > _STABLE_SECONDS else pauses
            pause = _PAUSES[min(pauses, len(_PAUSES) - 1)]
            pauses += 1
            self._report(EnvoyExited(self.gateway, reason, self.folder.log_tail(log_size), pause))
            await self._pause(pause)
        if self._current is not None and not self._leaving:
            await drain_and_terminate(self._current, self.admin, self.grace, self._at_once)

    def _start(self, command: list[str]) -> str:
        """Starts an Envoy unless one was adopted. Returns the reason of a failure, or an empty text."""
        if self._current is None:
            try:
                self._current = launch.start(command, self.folder)
            except OSError as error:
                return f"does not start: {error}"
        return ""

    async def _watch(self, handle: EnvoyHandle) -> None:
        """Waits until Envoy exits, or `stop` or `leave` is called."""
        async with asyncio.TaskGroup() as group:
            stop = group.create_task(self._stopping.wait())
            exited = group.create_task(handle.wait())
            while not stop.done() and not exited.done():
                await asyncio.wait((stop, exited), timeout=60, return_when=asyncio.FIRST_COMPLETED)
                self.folder.truncate_log()
            stop.cancel()
            exited.cancel()

    async def _retire(self, old: EnvoyHandle) -> None:
        """Terminates an Envoy with other settings, once the new one serves in its place."""
        socket = self.folder.admin_socket_set_aside(old.pid)
        while old.alive and not self._stopping.is_set() and not await self.admin.ready():
            await self._pause(0.1)
        if self._leaving:
            return  # the next Lasthop finds both
        await self._steer_from(old)
        await drain_and_terminate(old, Admin(socket), self.grace, self._at_once)
        socket.unlink(missing_ok=True)
        if new := self.pid:
            steering.release(new)

    async def _steer_from(self, old: EnvoyHandle) -> None:
        """Steers new connections to the current Envoy only. Without the right to do so, the old Envoy still receives a share
        of them, and some may be reset when it stops listening."""
        deadline = time.monotonic() + BIND_SECONDS
        while (new := self.pid) and not steering.has_all(new, old.pid) and time.monotonic() < deadline:
            if self._stopping.is_set():
                return
            await self._pause(0.05)
        if new and steering.steer(new, old.pid):
            await self._pause(steering.HANDSHAKE_SECONDS)
            steering.steer(new, old.pid, to_one=True)

    async def _pause(self, seconds: float) -> None:
        """Sleeps until the time is over, or `stop` or `leave` is called."""
        await wait_for(self._stopping, seconds)


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "exited"
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
