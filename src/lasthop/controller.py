"""The whole flow on one screen.

source ──batch──> engine ──update──> xDS server ──> Envoy
                    ^     ──status──> book (status, findings) ──> admin page, CLI, log
                    └── what came back: acknowledgements, refusals, ports, the system store, time
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from lasthop import logs
from lasthop.api.meta import Key
from lasthop.api.status import Status
from lasthop.engine import Engine
from lasthop.outputs.envoy.listeners import listener_port
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource
from lasthop.outputs.status.book import StatusBook
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.listener import Gateway
from lasthop.plan.proxy import ProxyState
from lasthop.plan.tls import SystemStore
from lasthop.resolve.gateways import gateway
from lasthop.resolve.settings import Settings
from lasthop.sources.source import Batch, Source
from lasthop.xds.events import Acked, Nacked
from lasthop.xds.quarantine import Part, Quarantine
from lasthop.xds.server import Server

SYSTEM_STORE_INTERVAL: Final = 1.0
LOOK: Final = 0.002
LOOKS: Final = 500
SLICE: Final = 40
"""Members of each output that are worked out before the next event is looked at: some 20 ms, so that an edit of one policy
does not wait for a CA that thousands share."""


class Controller:
    """One source, one engine, one xDS server. What a Gateway needs to exist is left to `host` and `cluster`."""

    def __init__(self, source: Source, settings: Settings, system_store: Callable[[], SystemStore | None]) -> None:
        self.source = source
        self.engine = Engine(settings, now=time.time())
        self.book = StatusBook(self.engine.store)
        self.server = Server(self)
        self.source_findings: tuple[Finding, ...] = ()
        self.log = logs.get()
        self._system_store = system_store
        self._proxies: dict[Key, ProxyState] = {}
        self._acked: dict[Key, dict[tuple[str, str], str]] = {}
        """Versions that a Gateway's proxy has acknowledged, by type and name."""
        self._quarantines: dict[Key, Quarantine] = {}
        self._withheld: dict[Key, frozenset[Part]] = {}
        self._gateways: set[Key] = set()
        self._told: set[Finding] = set()
        self._dirty = asyncio.Event()
        self._arrived = asyncio.Event()
        """A batch has come in."""
        self.loaded = asyncio.Event()
        """The source has been read once."""

    # --- what the way of running decides -----------------------------------------------------------------------------

    def want(self, gateways: Mapping[Key, Gateway]) -> None:
        """The Gateways that are ours, as they are to be served."""
        raise NotImplementedError

    def told(self, status: Mapping[Key, Status | None]) -> None:
        """Statuses that are others now."""

    # --- running -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        async for batch in self.source.batches():
            self.take(batch)

    def take(self, batch: Batch) -> None:
        self.engine.set_policies_known(batch.policies_known)
        self.engine.apply(batch.changes)
        self.source_findings = batch.findings
        self._tell_findings()
        self._arrived.set()
        if self.loaded.is_set():
            self._dirty.set()
        else:
            self.engine.set_system_store(self._system_store())
            # Everything made here stays, so looking through it for garbage, now or later, is a third of the time wasted.
            gc.disable()
            self._settle()
            gc.freeze()
            gc.enable()
            self.loaded.set()

    async def _settle_when_dirty(self) -> None:
        while True:
            await self._dirty.wait()
            self._settle(SLICE)
            if self.engine.unsettled:
                self._dirty.set()
                await self._until_sent()

    async def _until_sent(self) -> None:
        """Before more is worked out, what there is goes out: the latest goes first, so a backlog built ahead of its sending
        would only push an urgent edit back. A new batch ends the wait, and so does time, for a proxy that does not answer."""
        self._arrived.clear()
        await asyncio.sleep(0)
        for _ in range(LOOKS):
            if not self.server.behind or self._arrived.is_set():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._arrived.wait()

    async def _watch_time_and_store(self) -> None:
        while True:
            deadline = self.engine.graph.next_deadline()
            wait = SYSTEM_STORE_INTERVAL if deadline is None else deadline - time.time()
            await asyncio.sleep(min(SYSTEM_STORE_INTERVAL, max(0.0, wait)))
            self.engine.set_system_store(self._system_store())
            self.engine.advance(time.time())
            self._dirty.set()

    def _settle(self, limit: int | None = None) -> None:
        """From whatever has changed to everyone who must know."""
        self._dirty.clear()
        update = self.engine.settle(limit)
        for key, changes in update.xds.items():
            self.server.update(key.path, changes)
        self.book.take(update.status, time.time())
        self.told(update.status)
        self._sync_gateways()
        for key in update.xds:
            self._quarantine_served(key)
            self._proxy_changed(key)
        if update.findings:
            self._tell_findings()
        for (stage, member), error in self.engine.graph.crashes.items():
            self.log.error(
                "internal error; what it would have made is withheld", stage=stage, member=str(member), error=repr(error)
            )

    def _sync_gateways(self) -> None:
        """Proxies follow the Gateways that are ours."""
        found = {key: self.engine.graph.value(gateway, key) for key in self.engine.store.keys("Gateway")}
        wanted = {key: plan for key, plan in found.items() if plan is not None}
        for key in wanted.keys() - self._gateways:
            self.server.update(key.path, {})
        for key in self._gateways - wanted.keys():
            self.server.remove(key.path)
            self.engine.set_proxy(key, ProxyState())
            for known in (self._proxies, self._acked, self._quarantines, self._withheld):
                known.pop(key, None)
        self._gateways = set(wanted)
        self.want(wanted)

    # --- what comes back ---------------------------------------------------------------------------------------------

    def connected(self, gateway: str) -> None:
        self._proxy_changed(_key(gateway), connected=True, problem="")

    def disconnected(self, gateway: str) -> None:
        key = _key(gateway)
        still = self.server.state(gateway).proxies > 0
        if not still:
            self._acked.pop(key, None)
        self._proxy_changed(key, connected=still)

    def acked(self, gateway: str, event: Acked) -> None:
        key = _key(gateway)
        if event.type_url in (LISTENER, ROUTES):
            versions = {(event.type_url, name): r.version for name, r in event.resources.items()}
            self._acked.setdefault(key, {}).update(versions)
            self._proxy_changed(key)
        # Every acknowledgement counts: a refusal is narrowed down to what differs from the last one.
        if self._quarantine(key).acked(event.type_url, event.resources):
            self._withhold(key)

    def nacked(self, gateway: str, event: Nacked) -> None:
        key = _key(gateway)
        self.log.error(
            "the proxy refused configuration", gateway=gateway, type=event.type_url.rsplit(".")[-1], detail=event.detail
        )
        quarantine = self._quarantine(key)
        quarantine.nacked(event.type_url, event.resources, event.detail)
        self._proxy_changed(key, problem="; ".join((*quarantine.environment.values(), *quarantine.unattributed.values())))
        self._withhold(key)

    def _quarantine(self, key: Key) -> Quarantine:
        return self._quarantines.setdefault(key, Quarantine())

    def _withhold(self, key: Key) -> None:
        """Hands the parts in quarantine to the engine, which builds without them."""
        quarantine = self._quarantine(key)
        new, old = quarantine.quarantined, self._withheld.get(key, frozenset())
        for part in old - new:
            self.engine.set_quarantine(*part, None)
        for part in new - old:
            self.engine.set_quarantine(*part, quarantine.detail(part) or "refused")
        self._withheld[key] = new
        if new != old:
            self._tell_findings()
            self._dirty.set()

    def _quarantine_served(self, key: Key) -> None:
        quarantine, cache = self._quarantines.get(key), self.server.cache(key.path)
        if quarantine and cache and quarantine.served(cache, self._withheld.get(key, frozenset())):
            self._withhold(key)

    def _proxy_changed(self, key: Key, **changes: Any) -> None:
        """What is known of a Gateway's proxy goes into the engine, from where it reaches the status."""
        if key not in self._gateways:
            return
        acked = self._acked.get(key, {})
        listeners, tables = self._served(key, LISTENER), self._served(key, ROUTES)
        ports = {listener_port(name) for name, r in listeners.items() if acked.get((LISTENER, name)) == r.version}
        # Envoy accepts connections only when it has the listener's route tables too, in whatever version.
        ports -= {(int(name.split("/")[2]), "TCP") for name in tables if (ROUTES, name) not in acked}
        old = self._proxies.get(key, ProxyState())
        state = ProxyState(
            connected=changes.get("connected", old.connected),
            ports=frozenset(port for port, transport in ports if transport == "TCP"),
            udp_ports=frozenset(port for port, transport in ports if transport == "UDP"),
            problem=changes.get("problem", old.problem),
        )
        if state == old and key in self._proxies:
            return
        self._proxies[key] = state
        self.engine.set_proxy(key, state)
        self._dirty.set()

    def _served(self, key: Key, type_url: str) -> dict[str, Resource]:
        cache = self.server.cache(key.path)
        found = {name: cache.get(type_url, name) for name in cache.names(type_url)} if cache else {}
        return {name: resource for name, resource in found.items() if isinstance(resource, Resource)}

    # --- findings ----------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        refused = [
            Finding(
                _object_of(part, key),
                "RefusedByProxy",
                f"Envoy refused {part.id}, so it is withheld: {quarantine.detail(part)}",
                "Edit it, and please report this: Lasthop should have seen it first.",
            )
            for key, quarantine in self._quarantines.items()
            for part in sorted(quarantine.convicted)
        ]
        return [*self.source_findings, *self.engine.findings(), *refused]

    def _tell_findings(self) -> None:
        """Each problem once when it appears, and once when it is gone."""
        now = set(self.findings())
        for finding in sorted(now - self._told, key=str):
            log = self.log.error if finding.severity is Severity.ERROR else self.log.warning
            log(str(finding), reason=finding.reason)
        for finding in sorted(self._told - now, key=str):
            self.log.info(f"mended: {finding}")
        self._told = now

    @property
    def ready(self) -> bool:
        """Everything has been read, and every Gateway's proxy has acknowledged everything that is there for it."""
        return self.loaded.is_set() and all(self.server.state(key.path).synced for key in self._gateways)


def _object_of(part: Part, gateway: Key) -> Key:
    """Whom a refused part concerns: a cluster its Service, everything else the Gateway."""
    if part.type_url != CLUSTER:
        return gateway
    namespace, name = part.id.split("/")[2:4]
    return Key("Service", namespace, name)


def _key(path: str) -> Key:
    namespace, _, name = path.partition("/")
    return Key("Gateway", namespace, name)
