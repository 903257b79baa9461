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
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from lasthop import logs
from lasthop.api.meta import Key
from lasthop.api.status import Status
from lasthop.engine import Engine, Update
from lasthop.outputs.envoy.listeners import listener_port
from lasthop.outputs.envoy.resource import LISTENER, ROUTES, SECRET, Resource
from lasthop.outputs.status.book import StatusBook
from lasthop.outputs.status.crashed import query_name
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.listener import Gateway
from lasthop.plan.not_applied import NotApplied
from lasthop.plan.proxy import ProxyState
from lasthop.plan.tls import SystemStore
from lasthop.resolve.gateways import gateway
from lasthop.resolve.settings import Settings
from lasthop.sources.source import Batch, Source
from lasthop.store.node import Crash, NodeId
from lasthop.web.measures import Durations, Measure
from lasthop.xds.events import Acked, Nacked
from lasthop.xds.presence import Presence, Report, Standing
from lasthop.xds.quarantine import Part, Quarantine
from lasthop.xds.server import Server

SYSTEM_STORE_INTERVAL: Final = 1.0
ERROR_LENGTH: Final = 500
"""Characters of an internal error that are logged: its text may quote whatever somebody wrote."""
LOOK: Final = 0.002
LOOKS: Final = 500
SLICE: Final = 40
"""Members of each output that are worked out before the next event is looked at: some 20 ms, so that an edit of one policy
does not wait for a CA that thousands share."""
TURN: Final = 0.03
"""Seconds after which one member of each output is enough, where members cost more than that."""


class Controller:
    """One source, one engine, one xDS server. What a Gateway needs to exist is left to `host` and `cluster`."""

    def __init__(self, source: Source, settings: Settings, system_store: Callable[[], SystemStore | None]) -> None:
        self.source = source
        self.engine = Engine(settings, now=time.time())
        self.book = StatusBook(self.engine.store)
        self.server = Server(self)
        self.source_findings: tuple[Finding, ...] = ()
        self.not_applied: tuple[NotApplied, ...] = ()
        """Files whose present text is refused; for some of them an older text is in force."""
        self._all_read = True
        self.log = logs.get()
        self._system_store = system_store
        self.presence = Presence()
        self.time_to_programmed = Durations()
        """From a change of what a Gateway's proxies are to have until they have confirmed all of it."""
        self._proxies: dict[Key, ProxyState] = {}
        self._missing: dict[Key, str] = {}
        """Why a Gateway has no proxy, until it has one."""
        self._changed_at: dict[Key, float] = {}
        """Since when a Gateway's proxies have not confirmed everything."""
        self._quarantines: dict[Key, Quarantine] = {}
        self._withheld: dict[Key, dict[Part, str]] = {}
        """What is kept from a Gateway's proxies, and why; empty for what is only suspected."""
        self._built_without: dict[Key, frozenset[Part]] = {}
        """Of that, what our own quarantine holds."""
        self._gateways: dict[Key, Gateway] = {}
        self._crashes: dict[NodeId, Crash] = {}
        """Internal errors that have been told."""
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

    def found(self, new: list[Finding], gone: list[Finding]) -> None:
        """Findings that have come and gone, after everything has been read once."""

    def proxies_changed(self) -> None:
        """Something is new about the proxies that are connected here."""

    # --- running -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        async for batch in self.source.batches():
            self.take(batch)

    def take(self, batch: Batch) -> None:
        self.engine.set_policies_known(batch.policies_known)
        self.engine.set_policies_doubtful(batch.policies_doubtful)
        self.engine.set_crd_versions(batch.crd_versions)
        self.engine.apply(batch.changes)
        self.source_findings, self.not_applied = batch.findings, batch.not_applied
        self._all_read = batch.complete
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
            if self._settle_urgent():
                await asyncio.sleep(0)  # it is on its way before route tables, which may have megabytes, are put together
            self._settle(SLICE)
            if self.engine.unsettled_but(self._busy()):
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
            for path in self.presence.expire(time.monotonic()):
                self._elsewhere_changed(gateway_key(path))
            self._dirty.set()

    def _settle_urgent(self) -> bool:
        """What stands behind names (a tightened policy, other endpoints) goes to the proxies ahead of everything else. Says
        whether there was anything."""
        update = self.engine.settle(SLICE, urgent=True, enough=_used_up(TURN))
        self._send(update)
        self._sent(update)
        return bool(update.xds)

    def _settle(self, limit: int | None = None) -> None:
        """From whatever has changed to everyone who must know."""
        self._dirty.clear()
        update = self.engine.settle(limit, enough=_used_up(TURN), busy=self._busy())
        self._send(update)
        self.book.take(update.status, time.time())
        self.told(update.status)
        self._sync_gateways()
        self._sent(update)
        if update.findings:
            self._tell_findings()
        self._tell_crashes()

    def _busy(self) -> set[Key]:
        """Gateways none of whose proxies has an answer to the last route table yet. The answer, or time, wakes us."""
        return {key for key in self._gateways if self.server.busy(key.path)}

    def _send(self, update: Update) -> None:
        for key, changes in update.xds.items():
            self.server.update(key.path, changes)
        if not self.engine.building:  # or what is released would seem to be gone only because it is not built yet
            for key in list(self._quarantines):
                self._quarantine_served(key)

    def _sent(self, update: Update) -> None:
        for key in update.xds:
            self._changed_at.setdefault(key, time.monotonic())
            self._proxy_changed(key)

    def _tell_crashes(self) -> None:
        """Each once when it appears, and once when it is gone."""
        now = dict(self.engine.graph.crashes)
        for id in now.keys() - self._crashes.keys():
            error = repr(now[id].error)[:ERROR_LENGTH]
            self.log.error("internal error; what depends on it is closed", query=query_name(id), error=error, at=now[id].where)
        for id in self._crashes.keys() - now.keys():
            self.log.info("internal error is gone", query=query_name(id))
        self._crashes = now

    def _sync_gateways(self) -> None:
        """Proxies follow the Gateways that are ours. One that cannot be worked out stays as it was."""
        wanted: dict[Key, Gateway] = {}
        for key in self.engine.store.keys("Gateway"):
            plan = gateway.attempt(self.engine.graph, key)
            if isinstance(plan, Crash):
                plan = self._gateways.get(key)
            if plan is not None:
                wanted[key] = plan
        for key in wanted.keys() - self._gateways.keys():
            self.server.update(key.path, {})
        # Not before all of what it had is known to be gone: if it came back in between, the engine would tell of what is
        # other than before, to a server that has forgotten the rest.
        leaving = self._gateways.keys() - wanted.keys()
        staying = {key: self._gateways[key] for key in leaving} if self.engine.unsettled else {}
        for key in leaving - staying.keys():
            self.server.remove(key.path)
            self.engine.set_proxy(key, ProxyState())
            self.presence.gone(key.path)
            for part in self._withheld.get(key, {}):
                self.engine.set_quarantine(part.type_url, part.id, part.hash, None)
            for known in (
                self._proxies,
                self._missing,
                self._changed_at,
                self._quarantines,
                self._withheld,
                self._built_without,
            ):
                known.pop(key, None)
        self._gateways = wanted | staying
        self.want(wanted)

    # --- what comes back ---------------------------------------------------------------------------------------------

    def connected(self, gateway: str) -> None:
        key = gateway_key(gateway)
        self.presence.arrived(gateway)
        self._missing.pop(key, None)
        if quarantine := self._quarantines.get(key):
            quarantine.connected()
        self._proxy_changed(key)
        self.proxies_changed()

    def no_proxy(self, key: Key, why: str) -> None:
        """There is none, and none will come before something changes."""
        if key in self._gateways:
            self._missing[key] = why
            self._proxy_changed(key)

    def disconnected(self, gateway: str) -> None:
        if self.server.state(gateway).proxies == 0:
            self.presence.left(gateway, time.monotonic())
        self._proxy_changed(gateway_key(gateway))
        self.proxies_changed()

    def acked(self, gateway: str, event: Acked) -> None:
        key = gateway_key(gateway)
        if event.type_url in (LISTENER, ROUTES):
            versions = {name: resource.version for name, resource in event.resources.items()}
            if self.presence.confirmed(gateway, event.type_url, versions, event.removed):
                self._proxy_changed(key)
                self.proxies_changed()
        if key in self._changed_at and self.server.state(gateway).synced:
            self.time_to_programmed.observe(time.monotonic() - self._changed_at.pop(key))
        # Every acknowledgement counts: a refusal is narrowed down to what differs from the last one.
        quarantine = self._quarantine(key)
        problem = quarantine.problem
        if quarantine.acked(event.type_url, event.resources, event.removed):
            self._withhold(key)
        if quarantine.problem != problem:
            self._proxy_changed(key)
            self.proxies_changed()
        if event.type_url == ROUTES and self.engine.unsettled:
            self._dirty.set()

    def nacked(self, gateway: str, event: Nacked) -> None:
        key = gateway_key(gateway)
        self.log.error(
            "the proxy refused configuration", gateway=gateway, type=event.type_url.rsplit(".")[-1], detail=event.detail
        )
        quarantine = self._quarantine(key)
        quarantine.nacked(event.type_url, event.resources, event.detail)
        self._proxy_changed(key)
        self._withhold(key)
        self.proxies_changed()

    def _quarantine(self, key: Key) -> Quarantine:
        return self._quarantines.setdefault(key, Quarantine())

    def _withhold(self, key: Key) -> None:
        """Hands the parts in quarantine to the engine, which builds without them."""
        quarantine = self._quarantine(key)
        own = quarantine.quarantined
        certain = self._refused_elsewhere(key) | self._refused_here(key)
        new = {part: certain.get(part, "") for part in own | certain.keys()}
        old = self._withheld.get(key, {})
        for part in old.keys() | new.keys():
            if old.get(part) != new.get(part):
                self.engine.set_quarantine(part.type_url, part.id, part.hash, new.get(part))
        self._withheld[key], self._built_without[key] = new, own
        if new != old:
            self._tell_findings()
            self._dirty.set()

    def _quarantine_served(self, key: Key) -> None:
        quarantine, cache = self._quarantines.get(key), self.server.cache(key.path)
        if not quarantine or not cache:
            return
        changed = quarantine.served(cache, self._built_without.get(key, frozenset()))
        if not self.engine.unsettled:
            edited = [part for part in quarantine.convicted if not self.engine.is_built(part.type_url, part.id, part.hash)]
            quarantine.forget(edited)
            changed |= bool(edited)
        if changed:
            self._withhold(key)

    def _elsewhere_changed(self, key: Key) -> None:
        """What other replicas tell of a Gateway's proxies is other than before."""
        if key in self._gateways:
            self._withhold(key)
            self._proxy_changed(key)

    def _refused_elsewhere(self, key: Key) -> dict[Part, str]:
        """Proxies of other replicas refuse it, so they are built without; here the same must be built, or their versions would
        not be ours."""
        refused = (entry for standing in self.presence.elsewhere(key.path) for entry in standing.refused)
        return {Part(type_url, part, digest, owner): detail for type_url, part, digest, owner, detail in refused}

    def _proxy_changed(self, key: Key) -> None:
        """What is known of a Gateway's proxies goes into the engine, from where it reaches the status."""
        if key not in self._gateways:
            return
        holds = partial(self.presence.holds, key.path)
        listeners, tables = self._served(key, LISTENER), self._served(key, ROUTES)
        ports = {listener_port(name) for name, r in listeners.items() if holds(LISTENER, name, r.version)}
        # Envoy accepts connections only when it has the listener's route tables too, in whatever version.
        ports -= {(int(name.split("/")[2]), "TCP") for name in tables if not holds(ROUTES, name)}
        problems = (self._problem(key), *(standing.problem for standing in self.presence.elsewhere(key.path)))
        state = ProxyState.at(ports, self.presence.connected(key.path), next(filter(None, problems), ""))
        if state == self._proxies.get(key):
            return
        self._proxies[key] = state
        self.engine.set_proxy(key, state)
        self._dirty.set()

    def _served(self, key: Key, type_url: str) -> dict[str, Resource]:
        cache = self.server.cache(key.path)
        found = {name: cache.get(type_url, name) for name in cache.names(type_url)} if cache else {}
        return {name: resource for name, resource in found.items() if isinstance(resource, Resource)}

    def report(self) -> Report:
        """How the proxies that are connected here stand, for the replica that leads."""
        found = {}
        for key in self._gateways:
            versions = self.presence.here(key.path)
            problem, refused = self._problem(key), self._refused_here(key)
            if versions is not None or problem or refused:
                entries = tuple((*part, detail) for part, detail in sorted(refused.items(), key=str))
                found[key.path] = Standing(versions is not None, versions or {}, problem, entries)
        return found

    def _problem(self, key: Key) -> str:
        quarantine = self._quarantines.get(key)
        return self._missing.get(key) or (quarantine.problem if quarantine else "")

    def _refused_here(self, key: Key) -> dict[Part, str]:
        quarantine = self._quarantines.get(key)
        return {part: quarantine.detail(part) or "refused" for part in quarantine.convicted} if quarantine else {}

    # --- findings ----------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        refused = [
            Finding(
                part.owner or key,
                "RefusedByProxy",
                f"Envoy refused {part.id}, so it is withheld: {detail}",
                "Edit it, and please report this: Lasthop should have seen it first.",
            )
            for key in self._withheld
            for part, detail in sorted((self._refused_elsewhere(key) | self._refused_here(key)).items(), key=str)
            if part.type_url not in (ROUTES, SECRET)  # routes and listeners have conditions, and so findings, of their own
        ]
        return [*self.source_findings, *self.engine.findings(), *refused]

    def _tell_findings(self) -> None:
        """Each problem once when it appears, and once when it is gone."""
        now = set(self.findings())
        new, gone = sorted(now - self._told, key=str), sorted(self._told - now, key=str)
        for finding in new:
            log = self.log.error if finding.severity is Severity.ERROR else self.log.warning
            log(str(finding), **_where(finding))
        for finding in gone:
            self.log.info(f"mended: {finding}", **_where(finding))
        self._told = now
        self.book.find(sorted(now.difference(self.source_findings), key=str))
        if self.loaded.is_set() and (new or gone):
            self.found(new, gone)

    def measures(self) -> Iterator[Measure]:
        """What is counted besides what every way of running shows."""
        states = [((key.path,), self.server.state(key.path)) for key in sorted(self._gateways)]
        clients = [(name, state.proxies) for name, state in states]
        yield Measure("lasthop_xds_clients", "Proxies connected to this process.", ("gateway",), clients)
        synced = [(name, state.synced) for name, state in states]
        yield Measure("lasthop_xds_synced", "Whether each of these has confirmed all there is.", ("gateway",), synced)
        programmed = [
            ((key.path,), float(bool(state.ports or state.udp_ports))) for key, state in sorted(self._proxies.items())
        ]
        help = "Whether some port of the Gateway is served as it is written now."
        yield Measure("lasthop_gateway_programmed", help, ("gateway",), programmed)

    def uid_of(self, key: Key) -> str:
        """Empty if there is no such object."""
        obj = self.engine.store.get(key)
        return obj.metadata.uid if obj is not None else ""

    @property
    def settled(self) -> bool:
        """Whether everything that has come in is worked out and handed to the xDS server."""
        return self._all_read and not self._dirty.is_set() and not self.engine.unsettled

    @property
    def ready(self) -> bool:
        return not self.unready()

    def unready(self) -> list[str]:
        """Why this process is not ready, a line each. Where many share it, only what concerns all of them counts: a Gateway
        that is not served is its owner's business, and must not take the control plane from the others."""
        return [] if self.loaded.is_set() else ["not everything has been read yet"]


def _used_up(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _where(finding: Finding) -> dict[str, str]:
    return {"reason": finding.reason, **({"object": str(finding.object)} if finding.object else {})}


def gateway_key(path: str) -> Key:
    namespace, _, name = path.partition("/")
    return Key("Gateway", namespace, name)
