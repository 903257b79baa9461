"""Tracks the proxies of every Gateway as a pure state machine: events in, effects out, time as an argument.

    connected, disconnected, acked, nacked ──> Fleet ──> SetProxyState, SetQuarantine   inputs of the engine
    heard, expire, no_proxy, updated, served         ──> ReportChanged                  for the replica that leads
                                                     ──> Programmed                     time to programmed

It relates to the controller as `xds.session.XdsSession` to the xDS server: it decides, and the controller acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.xds.acks import AckReport, AckTracker, GatewayAcks
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.quarantine import Quarantine
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.outputs.envoy.listeners import listener_name
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES, SECRET, Part, Resource
from lasthop.engine.outputs.envoy.routes import table_name
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.proxy import ProxyState


class SetProxyState(msgspec.Struct, frozen=True):
    """Passes the state of a Gateway's proxies to the engine, which puts it into the status."""

    gateway: Key
    state: ProxyState


class SetQuarantine(msgspec.Struct, frozen=True):
    """Makes the engine build without a part, or with it again. Findings follow."""

    part: Part
    complaint: str | None
    """Envoy's message; empty while the part is one of several candidates, None when it is released."""


class ReportChanged(msgspec.Struct, frozen=True):
    """`Fleet.report()` has changed."""


class Programmed(msgspec.Struct, frozen=True):
    """All proxies of a Gateway have acknowledged everything, `seconds` after the change."""

    seconds: float


Effect = SetProxyState | SetQuarantine | ReportChanged | Programmed


class GatewayProxies:
    """The state of one Gateway's proxies."""

    def __init__(self, gateway: GatewayPlan, cache: Cache) -> None:
        self.gateway = gateway
        self.cache = cache
        self.state: ProxyState | None = None
        self.missing = ""
        """Why there is no proxy, until one connects."""
        self.changed_at: float | None = None
        """Time of the first change that the proxies have not acknowledged; None if they have acknowledged everything."""
        self.quarantine = Quarantine()
        self.withheld: dict[Part, str] = {}
        """The parts withheld from the proxies, with reasons; the reason of a mere candidate is empty."""
        self.built_without: frozenset[Part] = frozenset()
        """The withheld parts from this replica's own quarantine."""

    @property
    def problem(self) -> str:
        return self.missing or self.quarantine.problem

    @property
    def refused(self) -> dict[Part, str]:
        """The parts that proxies of this replica have certainly rejected."""
        return {part: self.quarantine.detail(part) or "refused" for part in self.quarantine.culprits}

    def serves(self, type_url: str, name: str) -> Resource | None:
        change = self.cache.get(type_url, name)
        return change if isinstance(change, Resource) else None


class Fleet:
    def __init__(self) -> None:
        self.acks = AckTracker()
        self.gateways: dict[Key, GatewayProxies] = {}

    # --- Gateways ----------------------------------------------------------------------------------------------------

    def want(self, gateway: GatewayPlan, cache: Cache) -> None:
        """Adds or updates a Gateway. The cache contains its proxies' resources."""
        if proxies := self.gateways.get(gateway.key):
            proxies.gateway = gateway
        else:
            self.gateways[gateway.key] = GatewayProxies(gateway, cache)

    def gone(self, key: Key) -> list[Effect]:
        """Removes a Gateway. If it comes back, its rejected parts are tried again."""
        proxies = self.gateways.pop(key)
        self.acks.gone(key)
        return [SetProxyState(key, ProxyState()), *(SetQuarantine(part, None) for part in proxies.withheld)]

    # --- proxies of this replica -------------------------------------------------------------------------------------

    def connected(self, key: Key) -> list[Effect]:
        if not (proxies := self.gateways.get(key)):
            return []
        self.acks.connected(key)
        proxies.missing = ""
        proxies.quarantine.connected()
        return [*self._state(proxies), ReportChanged()]

    def disconnected(self, key: Key, now: float, *, last: bool) -> list[Effect]:
        if not (proxies := self.gateways.get(key)):
            return []
        if last:
            self.acks.disconnected(key, now)
        return [*self._state(proxies), ReportChanged()]

    def acked(self, key: Key, event: Acked, now: float, *, synced: bool) -> list[Effect]:
        """Records an ACK. `synced`: the Gateway's proxies have now acknowledged everything."""
        if not (proxies := self.gateways.get(key)):
            return []
        effects: list[Effect] = []
        if event.type_url in (LISTENER, ROUTES):
            versions = {name: resource.version for name, resource in event.resources.items()}
            if self.acks.acked(key, event.type_url, versions, event.removed):
                effects += [*self._state(proxies), ReportChanged()]
        if synced and proxies.changed_at is not None:
            effects.append(Programmed(now - proxies.changed_at))
            proxies.changed_at = None
        # Every ACK counts, because a NACK's candidates are the differences from the last one.
        problem = proxies.problem
        if proxies.quarantine.acked(event.type_url, event.resources, event.removed):
            effects += self._withhold(proxies)
        if proxies.problem != problem:
            effects += [*self._state(proxies), ReportChanged()]
        return effects

    def nacked(self, key: Key, event: Nacked) -> list[Effect]:
        if not (proxies := self.gateways.get(key)):
            return []
        proxies.quarantine.nacked(event.type_url, event.resources, event.detail)
        return [*self._state(proxies), *self._withhold(proxies), ReportChanged()]

    def no_proxy(self, key: Key, why: str) -> list[Effect]:
        """Records that there is no proxy, and that none will start before something changes."""
        if not (proxies := self.gateways.get(key)):
            return []
        proxies.missing = why
        return self._state(proxies)

    # --- builds of the engine -----------------------------------------------------------------------------------

    def updated(self, key: Key, now: float) -> list[Effect]:
        """Records that the Gateway's cache has changed."""
        if not (proxies := self.gateways.get(key)):
            return []
        if proxies.changed_at is None:
            proxies.changed_at = now
        return self._state(proxies)

    def served(self, is_built: Callable[[Part], bool] | None) -> list[Effect]:
        """Records that the caches hold the configuration without the quarantined parts. `is_built` returns whether a part
        would exist if it were released; None while not everything is computed."""
        effects: list[Effect] = []
        for proxies in self.gateways.values():
            quarantine = proxies.quarantine
            changed = quarantine.served(proxies.cache, proxies.built_without)
            edited = [part for part in quarantine.culprits if not is_built(part)] if is_built else []
            quarantine.forget(edited)
            if changed or edited:
                effects += self._withhold(proxies)
        return effects

    # --- proxies of other replicas -----------------------------------------------------------------------------------

    def heard(self, replica: str, report: AckReport, now: float) -> list[Effect]:
        return self._elsewhere_changed(self.acks.heard(replica, report, now))

    def forget_replicas(self) -> list[Effect]:
        """Drops the reports of other replicas, which now go to another leader."""
        return self._elsewhere_changed(self.acks.forget_replicas())

    def expire(self, now: float) -> list[Effect]:
        return self._elsewhere_changed(self.acks.expire(now))

    def _elsewhere_changed(self, keys: Iterable[Key]) -> list[Effect]:
        changed = [proxies for key in keys if (proxies := self.gateways.get(key))]
        return [effect for proxies in changed for effect in (*self._withhold(proxies), *self._state(proxies))]

    # --- effects ------------------------------------------------------------------------------------------------

    def _withhold(self, proxies: GatewayProxies) -> list[Effect]:
        """Returns the parts to leave out. Other replicas build without the parts that their proxies reject, so this one must
        too, or the versions would differ."""
        reported = (entry for acks in self.acks.elsewhere(proxies.gateway.key) for entry in acks.refused)
        refused = {Part(type_url, part, digest, owner): detail for type_url, part, digest, owner, detail in reported}
        refused |= proxies.refused
        quarantined, old = proxies.quarantine.quarantined, proxies.withheld
        new = {part: refused.get(part, "") for part in quarantined | refused.keys()}
        proxies.withheld, proxies.built_without = new, quarantined
        return [SetQuarantine(part, new.get(part)) for part in old.keys() | new.keys() if old.get(part) != new.get(part)]

    def _state(self, proxies: GatewayProxies) -> list[Effect]:
        key = proxies.gateway.key
        problems = (proxies.problem, *(acks.problem for acks in self.acks.elsewhere(key)))
        state = ProxyState.acknowledged(self._ports(proxies), self.acks.has_proxy(key), next(filter(None, problems), ""))
        if state == proxies.state:
            return []
        proxies.state = state
        return [SetProxyState(key, state)]

    def _ports(self, proxies: GatewayProxies) -> set[tuple[int, str]]:
        """Returns the ports that some proxy serves in their current form. It has acknowledged the current listener, and some
        version of the port's route tables. Without those, Envoy accepts no connections."""
        key, ports, waiting = proxies.gateway.key, set(), set()
        for listener in proxies.gateway.listeners:
            port, table = (listener.port, listener.transport), table_name(key, listener.table)
            name = listener_name(key, *port)
            current = proxies.serves(LISTENER, name)
            if current and self.acks.holds(key, LISTENER, name, current.version):
                ports.add(port)
            if proxies.serves(ROUTES, table) and not self.acks.holds(key, ROUTES, table):
                waiting.add(port)
        return ports - waiting

    def report(self) -> AckReport:
        """Returns the ACKs and rejections of the proxies connected here, for the leader."""
        reports = {}
        for key, proxies in self.gateways.items():
            versions, refused = self.acks.here(key), proxies.refused
            if versions is not None or proxies.problem or refused:
                entries = tuple((*part, detail) for part, detail in sorted(refused.items(), key=str))
                reports[key] = GatewayAcks(versions is not None, versions or {}, proxies.problem, entries)
        return reports

    def findings(self) -> Iterator[Finding]:
        for key, proxies in self.gateways.items():
            for part, detail in sorted(proxies.withheld.items(), key=str):
                if detail and part.type_url not in (ROUTES, SECRET):  # these have conditions, and so findings, of their own
                    message = f"Envoy rejected {part.id}, so it is withheld: {detail}"
                    remedy = "Edit it, and please report this: Lasthop should have rejected it first."
                    yield make_finding(part.owner or key, reasons.REFUSED_BY_PROXY, message, remedy)
