"""Runs one Envoy as the main process of a Pod, for `lasthop proxy`.

start ──> Envoy runs, readiness follows its listeners ──> it exits by itself: exit 1, and the kubelet restarts us
                 └─> SIGTERM: not ready ──> linger, still accepting ──> stop accepting, finish requests ──> exit 0
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.proxy import launch
from lasthop.edge.proxy.access_log import AccessLogReader
from lasthop.edge.proxy.admin import Admin, AdminUnavailable
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.directory import ProxyDirectory
from lasthop.edge.proxy.drain import drain_and_terminate
from lasthop.edge.proxy.entry import AccessLogEntry, document
from lasthop.edge.proxy.handle import EnvoyHandle
from lasthop.edge.proxy.launch import cpus
from lasthop.edge.proxy.observer import ProxyObserver
from lasthop.edge.proxy.pod_settings import PodEnvironment
from lasthop.edge.proxy.readiness import ReadinessServer
from lasthop.edge.slices import wait_for
from lasthop.engine.outputs.envoy.xds_cluster import RemoteXds, sds_files
from lasthop.engine.plan.observation import ProxyReport

LINGER: Final = 5.0
"""Seconds for which a terminating Pod keeps accepting connections. Its Service drops it at once, but nodes and load balancers
learn that a little later."""


class Sender(Protocol):
    """Sends the proxy's observations to the controller."""

    def update(self, report: ProxyReport) -> None:
        """Replaces the report to send. Called every second; must not block."""

    async def run(self) -> None:
        """Sends until cancelled."""


class PodProxy:
    def __init__(self, settings: PodEnvironment, envoy: Envoy, sender: Sender) -> None:
        self._settings, self._sender = settings, sender
        self._envoy = envoy
        # A subdirectory, because the emptyDir itself always belongs to root.
        self._directory = ProxyDirectory(settings.run_dir / "envoy")
        self._admin = Admin(self._directory.admin_socket)
        self.readiness = ReadinessServer(self._admin)
        gateway = Key.read("Gateway", settings.gateway)
        self._observer = ProxyObserver(gateway, self._directory.samples, self._admin, sender.update, proxy=settings.pod)
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    def stop(self) -> None:
        """Makes `run` drain Envoy and return; the second call skips the drain."""
        if self._stopping.is_set():
            self._at_once.set()
        self.readiness.stopping = True
        self._stopping.set()

    async def run(self) -> int:
        """Returns the exit code. Raises OSError or `RunDirUnusable` if it cannot start."""
        command = self._prepare()
        with _forwarding(self._directory.access_log, self._observer) as forwarder:
            async with self.readiness.serving(self._settings.ready_port):
                handle = launch.start_child(command, self._directory)
                try:
                    return await self._watch(handle, forwarder)
                finally:
                    handle.close()

    async def _watch(self, handle: EnvoyHandle, forwarder: LogForwarder) -> int:
        log("Envoy started", gateway=self._settings.gateway, pid=handle.pid, xds=self._settings.xds_host)
        async with asyncio.TaskGroup() as tasks:
            forwarding = tasks.create_task(forwarder.run())
            observing = [tasks.create_task(work()) for work in (self._observer.run, self._sender.run)]
            stopping = tasks.create_task(self._stopping.wait())
            exited = tasks.create_task(handle.wait())
            await asyncio.wait((stopping, exited), return_when=asyncio.FIRST_COMPLETED)
            died = exited.done() and not stopping.done()
            if died:
                log("Envoy exited by itself", exit_code=handle.exit_code())
            else:
                await self._shut_down(handle)
            for task in (forwarding, *observing, stopping, exited):
                task.cancel()
        return 1 if died else 0

    def _prepare(self) -> list[str]:
        settings, directory = self._settings, self._directory
        directory.make()
        # A killed Envoy leaves its socket, because the emptyDir outlives the container.
        directory.admin_socket.unlink(missing_ok=True)
        xds = RemoteXds(settings.xds_host, settings.xds_port, settings.xds_server_name, settings.certificates, directory.path)
        for name, content in sds_files(xds).items():
            (directory.path / name).write_bytes(content)
        content = launch.make_bootstrap(settings.gateway, directory, xds)
        return launch.command(self._envoy, directory.write_bootstrap(self._envoy, content), cpus())

    async def _shut_down(self, handle: EnvoyHandle) -> None:
        drain = self._settings.drain_seconds
        linger = min(LINGER, drain / 3)
        log("stopping", drain_seconds=drain)
        with contextlib.suppress(AdminUnavailable):
            # From here on every response closes its client's connection; the next connection goes to another Pod.
            await self._admin.fail_health_check()
            await wait_for(self._at_once, linger)
        await drain_and_terminate(handle, self._admin, drain - linger, self._at_once)


class LogForwarder:
    """Writes failed requests, explained, to standard output."""

    def __init__(self, reader: AccessLogReader, failed: Callable[[AccessLogEntry], None]) -> None:
        """`failed` receives each entry."""
        self._reader, self._failed = reader, failed

    async def run(self) -> None:
        while True:
            self.pump()
            if skipped := self._reader.skipped(time.monotonic()):
                log("too many failed requests to log them all", lines_skipped=skipped.lines, bytes_skipped=skipped.bytes)
            await asyncio.sleep(self._reader.pause)

    def pump(self) -> None:
        lines = []
        for entry in self._reader.read():
            self._failed(entry)
            if entry.quiet:
                continue
            lines.append(msgspec.json.encode(document(entry)) + b"\n")
        if lines:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()


@contextlib.contextmanager
def _forwarding(path: Path, observer: ProxyObserver) -> Iterator[LogForwarder]:
    reader = AccessLogReader(path, from_end=True, written=observer.wrote)
    forwarder = LogForwarder(reader, observer.failed)
    try:
        yield forwarder
    finally:
        forwarder.pump()
        reader.close()


def log(event: str, **fields: Any) -> None:
    """Writes a line of JSON like those of the controller's log."""
    sys.stderr.write(msgspec.json.encode({"event": event, "level": "info", **fields}).decode() + "\n")
    sys.stderr.flush()
