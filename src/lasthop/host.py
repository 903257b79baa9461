"""A gateway on this host: one Envoy for each Gateway, as a child process that binds the Gateway's own addresses and ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.api.status import GatewayStatus
from lasthop.controller import Controller
from lasthop.infra import memory
from lasthop.infra.processes import Processes
from lasthop.infra.system_store import SystemStoreCopies
from lasthop.plan.listener import Gateway
from lasthop.plan.reasons import PROGRAMMED, RESOLVED_REFS
from lasthop.proxy.access_log import Skipped
from lasthop.proxy.entry import Entry
from lasthop.proxy.failures import UNANSWERED
from lasthop.proxy.find import Envoy
from lasthop.proxy.process import Ended, Event, Started
from lasthop.resolve.ports import Probe
from lasthop.resolve.profiles import proxy_profile
from lasthop.resolve.settings import Settings
from lasthop.sources.source import Source
from lasthop.store.node import Crash

REMEMBER_INTERVAL: Final = 1.0


class HostController(Controller):
    def __init__(
        self,
        source: Source,
        envoy: Envoy,
        run_dir: Path,
        *,
        settings: Settings | None = None,
        entry: Callable[[Entry], None] = lambda entry: None,
        concurrency: int | None = None,
        remembered: Path | None = None,
    ) -> None:
        """`remembered` is the file of what must survive a restart."""
        super().__init__(source, settings or Settings(), SystemStoreCopies(run_dir / "system-ca").current)
        self._remembered = remembered
        self.engine.recall_policies(memory.load(remembered) if remembered else {})
        self.processes = Processes(
            envoy,
            run_dir,
            probed=self._probed,
            proxy_event=self._proxy_event,
            entry=lambda failed: entry(self._with_reason(failed)),
            skipped=self._entries_skipped,
            concurrency=concurrency,
        )

    def want(self, gateways: Mapping[Key, Gateway]) -> None:
        wanted: dict[Key, set[tuple[str, int, str]]] = {}
        for key, found in gateways.items():
            served = [listener for listener in found.listeners if listener.served and found.accepted.status]
            wanted[key] = {(address, each.port, each.transport) for address in found.addresses for each in served}
        profiles = {key: proxy_profile.attempt(self.engine.graph, key) for key in gateways}
        drains = {key: found.drain_seconds for key, found in profiles.items() if not isinstance(found, Crash)}
        self.processes.want(wanted, {key: drain for key, drain in drains.items() if drain is not None})

    async def run(self) -> None:
        """Lives until `stop`; then ends the proxies with a drain and returns."""
        await self.server.start(self.processes.xds_socket)
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read())
                keeping = [tasks.create_task(work()) for work in (self._settle_when_dirty, self._watch_time_and_store)]
                await self.loaded.wait()
                self.processes.probe()
                self._settle()
                # Only now does anything go out: before every kind has been read once, "no policy" is not known.
                self.server.open()
                keeping.append(tasks.create_task(self._keep_remembered()))
                await self.processes.run()
                for task in (reading, *keeping):
                    task.cancel()
        finally:
            await self.server.close()

    def stop(self) -> None:
        self.processes.stop()

    async def _keep_remembered(self) -> None:
        """Once a second, and only where something is new."""
        path, saved = self._remembered, -1
        while path is not None:
            version = self.engine.last_policies_version
            if version != saved:
                try:
                    await asyncio.to_thread(memory.save, path, self.engine.last_policies())
                    saved = version
                except OSError as error:
                    self.log.warning("what is remembered cannot be saved", error=str(error))
                    return
            await asyncio.sleep(REMEMBER_INTERVAL)

    def unready(self) -> list[str]:
        """A gateway of one owner is there to serve: it is ready once some port of a Gateway is served, and every proxy has
        acknowledged everything that is there for it."""
        if found := super().unready():
            return found
        if not self._gateways:
            return ["nothing is served: there is no Gateway of a GatewayClass of this controller"]
        proxies = [key for key in sorted(self._gateways) if not self.server.state(key.path).decided]
        waiting = [f"the proxy of {key} has not acknowledged its configuration yet" for key in proxies]
        if not any(self._programmed(key) for key in self._gateways):
            waiting.append("nothing is served: no Gateway is programmed; see: lasthop status gateway")
        return waiting

    def _programmed(self, key: Key) -> bool:
        status = self.book.get(key)
        conditions = status.conditions if isinstance(status, GatewayStatus) else ()
        return any(condition.type == PROGRAMMED and condition.status == "True" for condition in conditions)

    def _probed(self, key: Key, address: str, port: int, transport: str, probe: Probe | None) -> None:
        """A port that cannot be had is a finding, which the log tells."""
        self.engine.set_probe(key, address, port, probe, transport)
        self._dirty.set()

    def _proxy_event(self, key: Key, event: Event | str) -> None:
        match event:
            case Started():
                self.log.info("proxy runs", gateway=key.path, pid=event.pid, adopted=event.adopted)
            case Ended():
                self.log.error("proxy ended", gateway=key.path, reason=event.reason, last_words=list(event.log))
            case str():
                self.log.error("no proxy", gateway=key.path, problem=event)
                self.no_proxy(key, event)

    def _entries_skipped(self, key: Key, skipped: Skipped) -> None:
        self.log.warning(
            "too many failed requests to log them all",
            gateway=key.path,
            lines_skipped=skipped.lines,
            bytes_skipped=skipped.bytes,
        )

    def _with_reason(self, entry: Entry) -> Entry:
        """Envoy cannot know why there is no cluster, be it to send to or to ask; the route's status does."""
        asking = entry.details == UNANSWERED
        if not (asking or "NC" in (entry.flags or "").split(",")) or not entry.route:
            return entry
        kind, _, path = entry.route.partition(" ")
        namespace, _, name = path.partition("/")
        status = self.book.get(Key(kind, namespace, name))
        parents = list(getattr(status, "parents", ()))
        here = [p for p in parents if f"{p.parent_ref.namespace or namespace}/{p.parent_ref.name}" == entry.gateway]
        conditions = (c for parent in here or parents for c in parent.conditions)
        said = next((c.message for c in conditions if c.type == RESOLVED_REFS and c.status == "False"), entry.why)
        if asking and ".externalAuth: " not in (said or ""):
            return entry
        return msgspec.structs.replace(entry, why=said)
