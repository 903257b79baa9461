"""Runs a gateway on this host: one Envoy for each Gateway, as a child process that binds the Gateway's own addresses and
ports."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.status import GatewayStatus
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.proxy.access_log import SkippedLines
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.failures import EXT_AUTHZ_ERROR
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.edge.proxy.supervisor import EnvoyExited, EnvoyStarted, Proxy, ProxyEvent
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.source import ObjectSource
from lasthop.engine.engine import Engine
from lasthop.engine.memory.codec import Damaged, Encoder, Memory, lost
from lasthop.engine.memory.record import Entry, Record
from lasthop.engine.outputs.status.status_cache import StatusCache
from lasthop.engine.outputs.topology import served_urls
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.problem import joined
from lasthop.engine.plan.reasons import PROGRAMMED
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.gateways.profiles import proxy_profile
from lasthop.engine.resolve.routing.attachment import parents
from lasthop.engine.resolve.routing.budgets import verdict_at
from lasthop.engine.resolve.routing.routes import RouteVerdict
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash
from lasthop.run import loop
from lasthop.run.controller import Controller
from lasthop.run.hop_log import HopLog
from lasthop.run.infra import memory
from lasthop.run.infra.processes import Processes
from lasthop.run.infra.system_store import SystemStoreCopies
from lasthop.run.problem_log import Locate

REMEMBER_INTERVAL: Final = 1.0
ANNOUNCE_INTERVAL: Final = 0.25
UNREADY_AFTER: Final = 5.0
"""Seconds after which the log explains why the gateway is not ready: an empty folder has no finding, and so no other line."""
MAX_REASONS: Final = 3
"""Logged reasons for not being ready."""
MAX_URLS: Final = 10
"""Logged URLs."""


class HostRuntime(Sink):
    def __init__(
        self,
        source: ObjectSource,
        envoy: Envoy,
        run_dir: Path,
        *,
        engine: Engine | None = None,
        sinks: Sequence[Sink] = (),
        entry: Callable[[AccessLogEntry], None] = lambda entry: None,
        concurrency: int | None = None,
        remembered: Path | None = None,
        who: Callable[[Key], str] = lambda key: "",
        locate: Locate = lambda *_: None,
    ) -> None:
        """`remembered` is the file of the state that must survive a restart. `who` returns the author of an object's last
        edit, `locate` its file and line."""
        store = SystemStoreCopies(run_dir / "system-ca").current
        engine = engine or Engine(now=time.time())
        recorded = self._changes_recorded
        self.controller = Controller(source, engine, store, (*sinks, self), who=who, recorded=recorded, locate=locate)
        self._log = self.controller.log
        self._hops = HopLog(self._log)
        self._entry = entry
        self._remembered = remembered
        self._revision = 0
        """Revision of the remembered state that was last read or written."""
        if remembered and (stored := self._stored(remembered)):
            self.controller.recall(stored)
        self.processes = Processes(
            envoy,
            run_dir,
            bind_result=self._bind_result,
            proxy_event=self._proxy_event,
            entry=self._logged,
            skipped=self._entries_skipped,
            seen=self.controller.seen,
            concurrency=concurrency,
        )

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        return self.processes.proxies

    @property
    def requests(self) -> RequestFeed:
        return self.processes.feed

    def _logged(self, entry: AccessLogEntry) -> None:
        explained = with_reason(self.controller.engine.graph, self.controller.statuses, entry)
        if explained.failed:  # successful requests come from the samples
            self.requests.publish(explained)
        self._entry(explained)

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        profiles = {key: proxy_profile.attempt(self.controller.engine.graph, key) for key in gateways}
        drains = {key: profile.drain_seconds for key, profile in profiles.items() if not isinstance(profile, Crash)}
        sockets = {key: _sockets(plan) for key, plan in gateways.items()}
        self.processes.want(sockets, {key: drain for key, drain in drains.items() if drain is not None})

    async def run(self) -> None:
        """Runs until `stop`, then drains the proxies and returns; or until `leave`."""
        controller = self.controller
        await controller.server.start(self.processes.xds_socket)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(loop.run(controller))]
                await controller.loaded.wait()
                self.processes.try_ports()
                if controller.engine.policies.withholds:
                    controller.engine.policies.adopt(await self.processes.plaintext_hops())
                controller.settle()
                # Only now does anything go out: before every kind has been read once, "no policy" is not known.
                controller.server.open()
                running += [tasks.create_task(work()) for work in (self._keep_remembered, self._announce)]
                await self.processes.run()
                for task in running:
                    task.cancel()
        finally:
            await controller.server.close()

    def stop(self) -> None:
        if self.processes.stopping:
            self._log.info("stopping immediately")
        elif grace := max((proxy.grace for proxy in self.proxies.values()), default=0.0):
            self._log.info(f"draining: requests in flight have up to {grace:g} s; press Ctrl-C again to stop immediately")
        self.processes.stop()

    def leave(self) -> None:
        """Stops the controller and leaves the proxies serving for the next Lasthop."""
        self.processes.leave()

    def hops_changed(self, hops: Sequence[Hop]) -> None:
        self._hops.changed(hops)

    def _changes_recorded(self, entries: Sequence[Entry]) -> None:
        self._hops.recorded(entries)

    async def _announce(self) -> None:
        """Logs readiness and the served URLs, or why the gateway is not ready; then the effects of each edit once it is in
        force."""
        controller, announced, waited, begun = self.controller, False, False, time.monotonic()
        while True:
            reasons = self.unready() if controller.settled else []
            if controller.settled and not reasons:
                self._log_serving(first=not announced)
                announced = True
            elif reasons and not announced and not waited and time.monotonic() - begun >= UNREADY_AFTER:
                waited = True
                self._log.warning(f"not ready yet: {'; '.join(reasons[:MAX_REASONS])}")
            await asyncio.sleep(ANNOUNCE_INTERVAL)

    def _log_serving(self, *, first: bool) -> None:
        graph = self.controller.engine.graph
        if self._hops.waiting:
            self._hops.tell(graph, self.controller.engine.has_hop, first=first)
        if first:
            urls = [url for key in sorted(self.controller.fleet.gateways) for url in served_urls(graph, key)]
            backends = self._hops.summary() or "none"
            self._log.info(f"ready: {', '.join(urls[:MAX_URLS])}{', ...' if len(urls) > MAX_URLS else ''}", backends=backends)

    def _stored(self, path: Path) -> Memory | None:
        """Returns the saved state, and reports if it is not the last one."""
        stored = memory.load(path)
        kept = memory.set_aside(path) if isinstance(stored, Damaged) else ""
        if loss := lost(stored, self._revision):
            self.controller.record_lost("; ".join(filter(None, (f"{path} {loss}", kept))))
        if not isinstance(stored, Memory):
            return None
        self._revision = max(self._revision, stored.record.revision)
        return stored

    async def _keep_remembered(self) -> None:
        """Saves changed or lost state once a second; with thousands of ports less often, but always at the end."""
        path, controller, encode = self._remembered, self.controller, Encoder()
        if path is None:
            return
        saved: object = None
        seen: memory.Stamp | None = None
        problem = RepeatFilter(lambda text: self._log.warning("cannot save how backends were verified", error=text))
        one_at_a_time = threading.Lock()  # a cancelled save continues in its thread

        took = 0.0

        def save(state: Memory) -> memory.Stamp | None:
            nonlocal took
            with one_at_a_time:
                begun = time.thread_time()  # a busy machine or a slow disk must not delay the next entry
                self._revision += 1
                record = msgspec.structs.replace(state.record, revision=self._revision)
                stamp = memory.save(path, Memory(state.ports, record), encode)
                took = time.thread_time() - begun
                return stamp

        def read_again() -> None:
            # Only the record: how ports were verified is known better here than in any file.
            stored = self._stored(path)
            controller.record.merge(stored.record if stored else Record())

        try:
            while True:
                took = 0.0
                try:
                    if saved is not None and await asyncio.to_thread(memory.stamp, path) != seen:
                        saved = None
                        read_again()
                    version = controller.remembered_version()
                    if version != saved:
                        seen = await asyncio.to_thread(save, controller.remembered())
                        saved, problem.last = version, ""
                except OSError as error:
                    problem(str(error))
                await asyncio.sleep(memory.pause(REMEMBER_INTERVAL, took))
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                with one_at_a_time:
                    changed = saved is not None and memory.stamp(path) != seen
                if changed:
                    read_again()
                if changed or controller.remembered_version() != saved:
                    save(controller.remembered())
            raise

    def unready(self) -> list[str]:
        """Returns why the gateway is not ready, if so. It is ready once some port of a Gateway is served and every proxy has
        acknowledged everything: a gateway of one owner exists to serve."""
        if problems := self.controller.unready():
            return problems
        gateways = sorted(self.controller.fleet.gateways)
        if not gateways:
            return ["nothing is served: no Gateway has a GatewayClass of this controller"]
        proxies = [key for key in gateways if not self.controller.server.state(key).decided]
        waiting = [f"the proxy of {key} has not acknowledged its configuration yet" for key in proxies]
        if not any(self._programmed(key) for key in gateways):
            waiting.append("nothing is served: no Gateway is programmed; see: lasthop status gateway")
        return waiting

    def _programmed(self, key: Key) -> bool:
        status = self.controller.statuses.get(key)
        conditions = status.conditions if isinstance(status, GatewayStatus) else ()
        return any(condition.type == PROGRAMMED and condition.status == "True" for condition in conditions)

    def _bind_result(self, key: Key, address: str, port: int, transport: str, result: BindResult | None) -> None:
        """Records whether a port can be bound; if not, a finding reports it."""
        BIND_RESULT.set(self.controller.engine.graph, result, key, address, port, transport)
        self.controller.dirty.set()

    def _proxy_event(self, key: Key, event: ProxyEvent | str) -> None:
        match event:
            case EnvoyStarted():
                self._log.info("proxy started", gateway=key.path, pid=event.pid, adopted=event.adopted)
            case EnvoyExited():
                self._log.error("proxy exited", gateway=key.path, reason=event.reason, log_tail=list(event.log_tail))
            case str():
                self._log.error("no proxy", gateway=key.path, problem=event)
                self.controller.do(self.controller.fleet.no_proxy(key, event))

    def _entries_skipped(self, key: Key, skipped: SkippedLines) -> None:
        counts = {"lines_skipped": skipped.lines, "bytes_skipped": skipped.bytes}
        self._log.warning("too many failed requests to log them all", gateway=key.path, **counts)


def _sockets(gateway: GatewayPlan) -> set[tuple[str, int, str]]:
    """Returns address, port and transport of each socket that a Gateway needs."""
    served = [listener for listener in gateway.listeners if listener.served and gateway.accepted.status]
    return {(address, listener.port, listener.transport) for address in gateway.addresses for listener in served}


def with_reason(g: Graph, statuses: StatusCache, entry: AccessLogEntry) -> AccessLogEntry:
    """Adds the reason of a missing cluster, of the backend or of ExternalAuth. Envoy does not know it; the verdict on the
    route contains it."""
    asking = entry.details == EXT_AUTHZ_ERROR
    route = statuses.key_of(entry.route or "")
    if route is None or not (asking or "NC" in (entry.flags or "").split(",")):
        return entry
    verdict = _with_problems(g, route, entry.gateway)
    if verdict is None or (asking and not verdict.unauthorized):
        return entry
    return msgspec.structs.replace(entry, why=limited(joined(verdict.refs, fields=True).text))


def _with_problems(g: Graph, route: Key, gateway: str | None) -> RouteVerdict | None:
    """Returns the first verdict on a route whose references have problems, at this Gateway if the route is attached to it."""
    attached = parents.attempt(g, route)
    parent_states = () if isinstance(attached, Crash) else attached
    at_gateway = [parent for parent in parent_states if parent.gateway.path == gateway]
    verdicts = (verdict_at(g, route, parent) for parent in at_gateway or parent_states)
    return next((verdict for verdict in verdicts if verdict.refs), None)
