"""Connects the whole flow, from source to proxies and statuses.

source ──batch──> engine ──update──> xDS server ──> Envoy
                    ^     ──status──> status cache, sinks ──> admin page, CLI, cluster, log
                    ├──── fleet <──ACKs, NACKs, reports of other replicas, time
                    └──── observations <──reports of proxies, time
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from lasthop.base import gc_pause
from lasthop.base.api.meta import Key
from lasthop.base.text.logs import LOG
from lasthop.edge.observe.observations import MAX_PROXIES, Observations
from lasthop.edge.observe.totals import Totals
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.edge.xds.server import XdsServer
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.engine import Engine, Update
from lasthop.engine.memory.codec import Memory
from lasthop.engine.memory.record import ChangeRecord, Entry
from lasthop.engine.outputs.envoy.quarantine import is_built, withhold
from lasthop.engine.outputs.envoy.resource import ROUTES, type_name
from lasthop.engine.outputs.findings.collection import FindingCollection
from lasthop.engine.outputs.status.status_cache import StatusCache
from lasthop.engine.plan.finding import Finding, FindingChanges
from lasthop.engine.plan.knowledge import Port
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.not_applied import NotApplied
from lasthop.engine.plan.observation import ProxyReport
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.settings import CRD_VERSIONS, OBSERVES, PROXY, SYSTEM_STORE, set_absent, set_observed
from lasthop.engine.store.node import Crash
from lasthop.engine.what_if import used_up
from lasthop.run.fleet import Effect, Fleet, Programmed, ReportChanged, SetProxyState, SetQuarantine
from lasthop.run.problem_log import Locate, ProblemLog

PROGRAMMED_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds."""
TURN: Final = 0.03
"""Seconds after which one member of each output suffices, for expensive members."""

PROOF_TIMEOUT: Final = 1.0
"""Seconds for which edits that lead to a port wait for the proof that no policy names it, which takes a few milliseconds.
Until then the previous configuration stays in force; after that the port is closed, and its routes report it."""
MAX_DETAIL_LENGTH: Final = 4_000
"""Characters of a NACK that are logged."""
MAX_LOGGED: Final = 10
"""Verification changes per edit that are logged."""
COMPLAINT_INTERVAL: Final = 10.0
"""Seconds between two log lines about a Gateway whose proxies exceed its budget."""


class Controller:
    """Connects one source, one engine, one xDS server and the sinks, including the one that runs the proxies."""

    def __init__(
        self,
        source: ObjectSource,
        engine: Engine,
        system_store: Callable[[], SystemStore | None],
        sinks: Sequence[Sink],
        *,
        who: Callable[[Key], str] = lambda key: "",
        recorded: Callable[[Sequence[Entry]], None] | None = None,
        locate: Locate = lambda *_: None,
    ) -> None:
        """`who` returns the author of an object's last edit, if known. `recorded` receives new entries of the record of
        changes; without it they are logged. `locate` returns file and line of an object."""
        self.source, self.engine = source, engine
        self.fleet, self.server, self.statuses = Fleet(), XdsServer(self), StatusCache(engine.store)
        self.observations, self.totals = Observations(), Totals()
        self.exceeded: Counter[Key] = Counter()
        """Refused streams and reports of each Gateway's proxies, because they exceeded its budget."""
        self._complain_at: dict[Key, float] = {}
        OBSERVES.set(engine.graph, True)
        self.source_findings: tuple[Finding, ...] = ()
        self.not_applied: tuple[NotApplied, ...] = ()
        """Files whose current text is rejected; some have an older text in force."""
        self.metrics = CollectorRegistry()
        """Common metrics; each runtime registers its own."""
        self.time_to_programmed = Histogram(
            "lasthop_time_to_programmed_seconds",
            "From a change of a Gateway's configuration until its proxies have confirmed all of it.",
            buckets=PROGRAMMED_BUCKETS,
            registry=self.metrics,
        )
        self._who, self._recorded = who, recorded or self._log_entries
        self.record = ChangeRecord()
        """The record of verification changes, and the current state with its start."""
        self.loaded = asyncio.Event()
        """Set once the source has been read."""
        self.log = LOG
        self.dirty, self.arrived = asyncio.Event(), asyncio.Event()
        """Set when there is something to settle; set when a batch has arrived."""
        self._system_store, self._sinks, self._problems = system_store, sinks, ProblemLog(self.log, locate)
        self._all_read, self._started = False, False
        self._awaiting: dict[tuple[Port, int], float] = {}
        """Ports that wait for a proof, with their occasion and the start of the wait."""
        self._settled_version = engine.graph.version
        """The version of the graph when it was last settled."""
        self._read, self._withheld = FindingCollection(), FindingCollection()

    # --- in: batches, inputs, time -----------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        graph = self.engine.graph
        self.engine.policies.set_unknown(batch.unknown)
        CRD_VERSIONS.set(graph, batch.crd_versions)
        set_absent(graph, batch.absent_kinds)
        self.engine.apply(batch.changes)
        self.engine.edited_while_stopped(batch.edited)
        self.engine.policies.proven(batch.proven)
        for sink in self._sinks:
            sink.objects_changed(batch.changes)
        self.log.debug("objects read", objects_changed=len(batch.changes), files_not_applied=len(batch.not_applied))
        self.source_findings, self.not_applied = batch.findings, batch.not_applied
        self._read.replace("source", batch.findings)
        self._publish_findings(self._read.changes())
        self._all_read = batch.complete
        self.arrived.set()
        if self.loaded.is_set():
            self._schedule_settle()
            return
        SYSTEM_STORE.set(self.engine.graph, self._system_store())
        with gc_pause.frozen():
            self.settle()
        self.loaded.set()

    def tick(self) -> None:
        """Processes the passage of time and the system's trust store."""
        SYSTEM_STORE.set(self.engine.graph, self._system_store())
        self.engine.advance(time.time())
        self.do(self.fleet.expire(time.monotonic()))
        self._observe()
        self.totals.keep_proxies(self.observations.reports)
        self.dirty.set()

    def _schedule_settle(self) -> None:
        """Schedules a settle if anything has changed. Many batches contain only our own status writes."""
        if self.engine.unsettled or self.engine.graph.version != self._settled_version:
            self.dirty.set()

    # --- out: configuration, statuses, findings ----------------------------------------------------------------------

    def busy(self) -> set[Key]:
        """Returns the Gateways without a proxy that has answered the last route table."""
        return {key for key in self.fleet.gateways if self.server.busy(key)}

    def settle_urgent(self, limit: int | None = None) -> bool:
        """Sends clusters, endpoints and secrets, so that a tightened policy does not wait for route tables. Returns whether
        there were any."""
        update = self.engine.settle(limit, urgent=True, enough=used_up(TURN), overdue=self._overdue())
        self._send(update)
        self._sent(update)
        self._request_proofs()
        return bool(update.xds)

    def settle(self, limit: int | None = None) -> None:
        """Computes all changes and passes them to the xDS server, the sinks and the log."""
        self.dirty.clear()
        update = self.engine.settle(limit, enough=used_up(TURN), busy=self.busy(), overdue=self._overdue())
        self._send(update)
        self.statuses.take(update.status, time.time())
        for sink in self._sinks:
            sink.status_changed(update.status)
        self._sync_gateways()
        self._sent(update)
        self._keep_record()
        self._report_findings(update.findings)
        self._problems.crashes(self.engine.graph.crashes)
        self._settled_version = self.engine.graph.version
        self._request_proofs()

    def _keep_record(self) -> None:
        """Records verification changes. The record begins once everything has been read and compared."""
        memory, now = self.engine.verifications, time.time()
        if not self._started and self._all_read and not self.engine.unsettled:
            self._started = True
            memory.started()
            self.record.begin(memory.census(), now)
        if new := self.record.add(memory.edits(), now, self._who):
            self._recorded(new)
            record = self.record.record
            self.log.info("recorded changes of verification", entries=record.entries[-1].number, head=record.head)

    def _log_entries(self, entries: Sequence[Entry]) -> None:
        for entry in entries[:MAX_LOGGED]:
            log = self.log.warning if entry.weaker else self.log.info
            log(entry.line, gateways=list(entry.gateways), because=entry.because, by=entry.by)
        if len(entries) > MAX_LOGGED:
            self.log.info(f"and {len(entries) - MAX_LOGGED} more changes of verification; see: lasthop audit --since 1h")

    def _request_proofs(self) -> None:
        awaiting = self.engine.policies.awaiting()
        if awaiting.items() != self._awaiting.keys():
            now = time.monotonic()
            self._awaiting = {item: self._awaiting.get(item, now) for item in awaiting.items()}
            self.source.prove(awaiting)

    def _overdue(self) -> set[Port]:
        now = time.monotonic()
        return {port for (port, _), since in self._awaiting.items() if now - since >= PROOF_TIMEOUT}

    @property
    def proving(self) -> bool:
        """Returns whether an edit waits for a proof, which should arrive in a moment."""
        return len(self._overdue()) < len(self._awaiting)

    def recall(self, memory: Memory) -> None:
        """Restores the memory of an earlier process. Called before the source is read."""
        complete = memory.complete and memory.record.since is not None
        self.engine.verifications.recall(memory.ports, complete=complete)
        self.record.merge(memory.record)

    def record_lost(self, loss: str) -> None:
        """Logs and records a loss of the stored record, as `ConfigMap a/b was deleted`. Before anything is compared, this
        process does not know the lost entries."""
        then = "it will be rewritten from memory" if self._started else "this process does not know the lost entries"
        self.log.warning(f"the record of verification changes: {loss}; {then}")
        self.record.note(loss, time.time())

    def remembered(self) -> Memory:
        """Returns the memory for later processes."""
        return Memory(self.engine.verifications.ports(), self.record.record)

    def remembered_version(self) -> tuple[int, int]:
        """Returns a value that changes whenever `remembered` does."""
        return self.engine.verifications.version, self.record.version

    def _send(self, update: Update) -> None:
        for sink in self._sinks if update.hops else ():
            sink.hops_changed(update.hops)
        for key, changes in update.xds.items():
            self.server.update(key, changes)
        if not self.engine.building:  # otherwise released parts would look removed, only because they are not built yet
            self.do(self.fleet.served(None if self.engine.unsettled else partial(is_built, self.engine.graph)))

    def _sent(self, update: Update) -> None:
        for key, by_type in update.xds.items():
            counts = {type_name(type_url): len(changes) for type_url, changes in by_type.items()}
            self.log.debug("configuration changed", gateway=key.path, **counts)
            self.do(self.fleet.updated(key, time.monotonic()))

    def _sync_gateways(self) -> None:
        """Adds our Gateways and removes others. A Gateway whose query crashed stays unchanged."""
        gateways: dict[Key, GatewayPlan] = {}
        for key in self.engine.store.keys("Gateway"):
            plan = gateway.attempt(self.engine.graph, key)
            if isinstance(plan, Crash):
                plan = proxies.gateway if (proxies := self.fleet.gateways.get(key)) else None
            if plan is not None:
                gateways[key] = plan
                self.fleet.want(plan, self.server.add(key))
        # Only after all its resources are removed. Otherwise, for a Gateway that comes back, the engine would send differences
        # to a server that has dropped its other resources.
        for key in () if self.engine.unsettled else self.fleet.gateways.keys() - gateways.keys():
            self.server.remove(key)
            self.do(self.fleet.gone(key))
            self.observations.forget(key)
            self.totals.forget(key)
            self.exceeded.pop(key, None)
            self._complain_at.pop(key, None)
        for sink in self._sinks:
            sink.want(gateways)

    def _report_findings(self, changes: FindingChanges) -> None:
        """Reports findings about existing objects."""
        self.statuses.find(changes)
        self._publish_findings(changes)

    def _publish_findings(self, changes: FindingChanges) -> None:
        self._problems.findings(changes)
        for sink in self._sinks if self.loaded.is_set() and changes else ():
            sink.findings_changed(changes)

    # --- back: events of the proxies ---------------------------------------------------------------------------------

    def connected(self, gateway: Key) -> None:
        self.log.debug("proxy connected", gateway=gateway.path)
        self.do(self.fleet.connected(gateway))

    def disconnected(self, gateway: Key) -> None:
        last = self.server.state(gateway).proxies == 0
        self.log.debug("proxy disconnected", gateway=gateway.path, last=last)
        self.do(self.fleet.disconnected(gateway, time.monotonic(), last=last))

    def acked(self, gateway: Key, event: Acked) -> None:
        synced = self.server.synced(gateway)
        self.log.debug("acknowledged", gateway=gateway.path, type=type_name(event.type_url), synced=synced)
        self.do(self.fleet.acked(gateway, event, time.monotonic(), synced=synced))
        if event.type_url == ROUTES and self.engine.unsettled:
            self.dirty.set()

    def nacked(self, gateway: Key, event: Nacked) -> None:
        type = type_name(event.type_url)
        detail = event.detail[:MAX_DETAIL_LENGTH]
        self.log.error("the proxy refused configuration", gateway=gateway.path, type=type, detail=detail)
        self.do(self.fleet.nacked(gateway, event))

    def over_budget(self, gateway: Key, why: str) -> None:
        """Counts a proxy that has sent more than its Gateway can need."""
        self.exceeded[gateway] += 1
        now = time.monotonic()
        if now >= self._complain_at.get(gateway, 0.0):
            self._complain_at[gateway] = now + COMPLAINT_INTERVAL
            self.log.warning("a proxy exceeds the budget of its Gateway", gateway=gateway.path, why=why)

    def seen(self, report: ProxyReport) -> None:
        """Processes a proxy's report."""
        for _ in self.seeing(report):
            pass

    def seeing(self, report: ProxyReport) -> Iterator[None]:
        """Processes a report in steps, because it may contain thousands of hops. One report at a time."""
        if report.gateway not in self.fleet.gateways:
            return
        if self.observations.heard(report, time.time()):
            yield from self.totals.heard(report)
        else:
            self.over_budget(report.gateway, f"{MAX_PROXIES} of its proxies already report, which is the limit")
        self._observe()
        while self.observations.pending:
            yield
            self._observe()

    def _observe(self) -> None:
        for (hop, config), state in self.observations.step(time.time()).items():
            if set_observed(self.engine.graph, hop, config, state):
                self.dirty.set()

    def do(self, effects: Iterable[Effect]) -> None:
        """Executes the fleet's effects."""
        withheld = False
        for effect in effects:
            match effect:
                case SetProxyState(key, state):
                    PROXY.set(self.engine.graph, state, key)
                    self.dirty.set()
                case SetQuarantine(part, complaint):
                    withhold(self.engine.graph, part, complaint)
                    withheld = True
                case Programmed(seconds):
                    self.time_to_programmed.observe(seconds)
                case ReportChanged():
                    for sink in self._sinks:
                        sink.proxies_changed()
        if withheld:
            self._withheld.replace("fleet", tuple(self.fleet.findings()))
            self._report_findings(self._withheld.changes())
            self.dirty.set()

    # --- state -----------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        return [*self.source_findings, *self.engine.findings(), *self.fleet.findings()]

    @property
    def settled(self) -> bool:
        """Returns whether all input is computed and passed to the xDS server."""
        return self._all_read and not self.dirty.is_set() and not self.engine.unsettled

    def unready(self) -> list[str]:
        """Returns why this process is not ready, a line each. In a shared process only common causes count: a Gateway that is
        not served must not make the control plane unready for the others."""
        return [] if self.loaded.is_set() else ["not everything has been read yet"]
