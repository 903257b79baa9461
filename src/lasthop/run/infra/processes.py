"""Runs proxies as child processes of this host: one Envoy for each Gateway, bound to the Gateway's own addresses and ports."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.access_log import SkippedLines, follow
from lasthop.edge.proxy.admin import AdminUnavailable
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.directory import RunDirUnusable
from lasthop.edge.proxy.drain import GRACE_SECONDS, end_orphans
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.handle import find_envoys
from lasthop.edge.proxy.observer import ProxyObserver
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.edge.proxy.supervisor import Proxy, ProxyEvent
from lasthop.engine.plan.observation import ProxyReport
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.gateways.ports import BindResult
from lasthop.run.infra import ports

RETRY: Final = 2.0
"""Seconds until an unusable port or directory is tried again."""

Socket = tuple[Key, str, int, str]
"""Gateway, address, port, TCP or UDP."""


class Processes:
    """Runs the proxies requested by `want()`, and reports through the callbacks."""

    def __init__(
        self,
        envoy: Envoy,
        run_dir: Path,
        *,
        bind_result: Callable[[Key, str, int, str, BindResult | None], None],
        proxy_event: Callable[[Key, ProxyEvent | str], None],
        entry: Callable[[AccessLogEntry], None],
        skipped: Callable[[Key, SkippedLines], None],
        seen: Callable[[ProxyReport], None] = lambda report: None,
        concurrency: int | None = None,
    ) -> None:
        self._envoy = envoy
        self._run_dir = run_dir
        self.xds_socket = run_dir / "xds.sock"
        self._bind_result, self._proxy_event, self._entry, self._skipped = bind_result, proxy_event, entry, skipped
        self._seen, self._concurrency = seen, concurrency
        self._proxies: dict[Key, Proxy] = {}
        self._retiring: list[Proxy] = []
        self._wanted: set[Socket] = set()
        self._results: dict[Socket, BindResult] = {}
        self._held: dict[Socket, ports.HeldPort] = {}
        self._news = asyncio.Event()
        self._stopping = self._leaving = False
        self.feed = RequestFeed()
        """The feed of requests for readers."""

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        return self._proxies

    @property
    def stopping(self) -> bool:
        return self._stopping

    def want(self, gateways: Mapping[Key, set[tuple[str, int, str]]], graces: Mapping[Key, float] | None = None) -> None:
        """Receives the Gateways to run, each with the addresses and ports (TCP or UDP) that it binds. `graces` are the seconds
        for proxies to finish their requests, by Gateway."""
        for key in gateways.keys() - self._proxies.keys():
            self._proxies[key] = Proxy(
                key.path,
                self._envoy,
                run_dir=self._run_dir,
                xds_socket=self.xds_socket,
                report=functools.partial(self._proxy_event, key),
                concurrency=self._concurrency,
            )
        for key in gateways:
            self._proxies[key].grace = (graces or {}).get(key, GRACE_SECONDS)
        for key in self._proxies.keys() - gateways.keys():
            proxy = self._proxies.pop(key)
            proxy.stop()
            self._retiring.append(proxy)
        requested = {(key, *socket) for key, sockets in gateways.items() for socket in sockets}
        for socket in self._wanted - requested:
            self._results.pop(socket, None)
            self._release(socket)
            self._bind_result(*socket, None)
        new = not requested <= self._wanted
        self._wanted = requested
        self._news.set()
        if new:
            self.try_ports()

    def try_ports(self) -> None:
        """Tries every wanted port without a success yet."""
        for socket in sorted(self._wanted):
            old = self._results.get(socket)
            if old is None or old.problem:
                new = self._try(*socket)
                self._results[socket] = new
                if new != old:
                    self._bind_result(*socket, new)

    def _try(self, key: Key, address: str, port: int, transport: str) -> BindResult:
        problem = self._hold(key, address, port) if transport == "TCP" else ports.problem(address, port, transport)
        if problem is None or (problem.in_use and self._is_ours(key, port, transport)):
            return BindResult()
        return BindResult(problem.reason, problem.remedy)

    def _hold(self, key: Key, address: str, port: int) -> ports.BindProblem | None:
        """Reserves a port until our Envoy has bound it; returns why that is impossible."""
        held = [socket for socket in self._held if socket[2] == port]
        if any(ports.covers(socket[1], address) for socket in held):
            return None
        for socket in held:
            if ports.covers(address, socket[1]):
                self._release(socket)
        reservation = ports.hold(address, port)
        if isinstance(reservation, ports.BindProblem):
            return reservation
        self._held[key, address, port, "TCP"] = reservation
        return None

    def _release(self, socket: Socket) -> None:
        if held := self._held.pop(socket, None):
            held.close()

    def _is_ours(self, key: Key, port: int, transport: str) -> bool:
        """Returns whether an Envoy of this Gateway, which will be adopted or replaced, has the port."""
        return not _envoys(self._proxies[key]).isdisjoint(ports.holders(port, transport))

    async def plaintext_hops(self) -> list[Hop]:
        """Returns the hops that Envoys of an earlier Lasthop serve in plaintext; none for an Envoy that does not answer."""
        hops: list[Hop] = []
        for proxy in self._proxies.values():
            with contextlib.suppress(AdminUnavailable):
                hops += await proxy.admin.plaintext_hops() if _envoys(proxy) else []
        return hops

    async def run(self) -> None:
        """Runs until `stop`, and then until the last proxy has exited; or until `leave`."""
        await end_orphans(self._run_dir, [key.path for key in self._proxies])
        running: dict[Proxy, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._keep_probing())
            while not self._stopping or any(not task.done() for task in running.values()):
                # A stopped proxy is not started again.
                for key, proxy in () if self._stopping else self._proxies.items():
                    if proxy not in running:
                        running[proxy] = tasks.create_task(self._supervise(key, proxy))
                self._news.clear()
                waiting = tasks.create_task(self._news.wait())
                await asyncio.wait((waiting, *running.values()), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                running = {proxy: task for proxy, task in running.items() if not task.done()}
            watching.cancel()
        await self._end()

    async def _end(self) -> None:
        for socket in tuple(self._held):
            self._release(socket)
        if not self._leaving:
            # An Envoy of an earlier Lasthop still runs if this process was stopped before it could adopt it.
            await end_orphans(self._run_dir, [key.path for key, proxy in self._proxies.items() if not _envoys(proxy)])

    def stop(self) -> None:
        """Drains and stops every proxy; a second call skips the drain."""
        self._stopping = True
        for proxy in (*self._proxies.values(), *self._retiring):
            proxy.stop()
        self._news.set()

    def leave(self) -> None:
        """Leaves every proxy serving for the next Lasthop; a proxy whose Gateway was deleted still drains."""
        self._stopping = self._leaving = True
        for proxy in self._proxies.values():
            proxy.leave()
        self._news.set()

    async def _keep_probing(self) -> None:
        while True:
            self.try_ports()
            await asyncio.sleep(RETRY)

    async def _supervise(self, key: Key, proxy: Proxy) -> None:
        reported = ""
        while not self._stopping and self._proxies.get(key) is proxy:
            observer = ProxyObserver(key, proxy.folder.samples, proxy.admin, self._seen, feed=self.feed)
            async with asyncio.TaskGroup() as tasks:
                following = [tasks.create_task(work) for work in (self._follow(key, proxy, observer), observer.run())]
                try:
                    return await proxy.run()
                except RunDirUnusable as error:
                    if str(error) != reported:
                        reported = str(error)
                        self._proxy_event(key, reported)
                finally:
                    for task in following:
                        task.cancel()
            await asyncio.sleep(RETRY)

    async def _follow(self, key: Key, proxy: Proxy, observer: ProxyObserver) -> None:
        skipped = functools.partial(self._skipped, key)
        async for entry in follow(proxy.folder.access_log, from_end=True, skipped=skipped, written=observer.wrote):
            observer.failed(entry)
            self._entry(msgspec.structs.replace(entry, stands_for=observer.stands_for(entry)))


def _envoys(proxy: Proxy) -> set[int]:
    envoys = find_envoys(proxy.folder.path)
    for envoy in envoys:
        envoy.close()
    return {envoy.pid for envoy in envoys}
