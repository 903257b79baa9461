"""`lasthop proxy`: the parent of one Envoy in a Pod.

start ──> Envoy runs, readiness follows its listeners ──> it ends by itself: exit 1, and the kubelet starts us again
                 └─> SIGTERM: not ready ──> linger, still accepting ──> stop accepting, finish requests ──> exit 0
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from lasthop.outputs.envoy.bootstrap import MAX_CONNECTIONS, bootstrap
from lasthop.outputs.envoy.xds_cluster import RemoteXds, sds_files
from lasthop.proxy import launch
from lasthop.proxy.access_log import Reader
from lasthop.proxy.admin import Admin, AdminUnavailable
from lasthop.proxy.cpus import cpus
from lasthop.proxy.drain import end
from lasthop.proxy.find import Envoy
from lasthop.proxy.folder import Folder
from lasthop.proxy.memory import max_heap
from lasthop.proxy.pod_settings import PodSettings
from lasthop.proxy.readiness import Readiness
from lasthop.proxy.running import Running

LINGER: Final = 5.0
"""A Pod that is deleted leaves its Service at the same moment, but nodes and load balancers hear of it a little later."""

_PR_SET_PDEATHSIG: Final = 1


class Pod:
    def __init__(self, settings: PodSettings, envoy: Envoy) -> None:
        self._settings = settings
        self._envoy = envoy
        # A folder in it: an emptyDir belongs to root, whoever runs in the Pod.
        self._folder = Folder(settings.run_dir / "envoy")
        self._admin = Admin(self._folder.admin_socket)
        self.readiness = Readiness(self._admin)
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    def stop(self) -> None:
        """Asked again, at once."""
        if self._stopping.is_set():
            self._at_once.set()
        self.readiness.stopping = True
        self._stopping.set()

    async def run(self) -> int:
        """The exit code. Raises OSError or `FolderUnusable` if it cannot start."""
        command = self._prepare()
        with _forwarding(self._folder.access_log) as forward:
            async with self.readiness.serving(self._settings.ready_port):
                running = start(command, self._folder.path)
                try:
                    return await self._watch(running, forward)
                finally:
                    running.close()

    async def _watch(self, running: Running, forward: _Forward) -> int:
        say("Envoy runs", gateway=self._settings.gateway, pid=running.pid, xds=self._settings.xds_host)
        async with asyncio.TaskGroup() as tasks:
            forwarding = tasks.create_task(forward.run())
            stopping = tasks.create_task(self._stopping.wait())
            gone = tasks.create_task(running.gone())
            await asyncio.wait((stopping, gone), return_when=asyncio.FIRST_COMPLETED)
            died = gone.done() and not stopping.done()
            if died:
                say("Envoy has ended by itself", exit_code=running.exit_code())
            else:
                await self._end(running)
            for task in (forwarding, stopping, gone):
                task.cancel()
        return 1 if died else 0

    def _prepare(self) -> list[str]:
        settings, folder = self._settings, self._folder
        folder.make()
        # What an Envoy that was killed has left: the emptyDir outlives its container.
        folder.admin_socket.unlink(missing_ok=True)
        xds = RemoteXds(settings.xds_host, settings.xds_port, settings.xds_server_name, settings.certificates, folder.path)
        for name, content in sds_files(xds).items():
            (folder.path / name).write_bytes(content)
        content = bootstrap(
            node_id=settings.gateway,
            xds=xds,
            admin_socket=folder.admin_socket,
            max_connections=min(MAX_CONNECTIONS, launch.descriptors() * 2 // 5),
            max_heap=max_heap(),
        )
        return launch.command(self._envoy, folder.write_bootstrap(self._envoy, content), cpus())

    async def _end(self, running: Running) -> None:
        drain = self._settings.drain_seconds
        linger = min(LINGER, drain / 3)
        say("stopping", drain_seconds=drain)
        with contextlib.suppress(AdminUnavailable):
            # From here on every answer asks the client to come back by another connection, which goes to another Pod.
            await self._admin.fail_health_check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    await self._at_once.wait()
        await end(running, self._admin, drain - linger, self._at_once)


def start(args: list[str], folder: Path) -> Running:
    """Envoy as a child that dies with us; what it has to say goes where our own log goes."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    # No other thread runs here, so that a function between fork and exec is safe.
    process = subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd=folder,
        start_new_session=True,
        preexec_fn=die_with_parent,
        restore_signals=False,
    )
    pidfd = os.pidfd_open(process.pid)
    process.returncode = 0  # the pidfd is how it is waited for
    launch.set_limits(process.pid)
    return Running(process.pid, pidfd, tuple(args[1:]))


class _Forward:
    """Failed requests, with the reason in words, on standard output."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self) -> None:
        while True:
            self.pump()
            if skipped := self._reader.skipped(time.monotonic()):
                say("too many failed requests to log them all", lines_skipped=skipped.lines, bytes_skipped=skipped.bytes)
            await asyncio.sleep(self._reader.pause)

    def pump(self) -> None:
        lines = []
        for entry in self._reader.read():
            fields = msgspec.structs.asdict(entry)
            lines.append(msgspec.json.encode({name: value for name, value in fields.items() if value is not None}) + b"\n")
        if lines:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()


@contextlib.contextmanager
def _forwarding(path: Path) -> Iterator[_Forward]:
    reader = Reader(path, from_end=True)
    forward = _Forward(reader)
    try:
        yield forward
    finally:
        forward.pump()
        reader.close()


def say(event: str, **fields: Any) -> None:
    """A line of JSON, as the controller's log has them."""
    sys.stderr.write(msgspec.json.encode({"event": event, "level": "info", **fields}).decode() + "\n")
    sys.stderr.flush()
