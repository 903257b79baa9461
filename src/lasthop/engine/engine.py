"""The engine: objects in, changes out. No clock, no sockets; everything that runs Lasthop runs this.

Batch ──> Store ──> Graph (STAGES in order) ──> Update: xDS changes by Gateway, status by object, findings
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from lasthop.base.api.addresses import with_port
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.status import Status
from lasthop.engine.memory.causes import Causes
from lasthop.engine.memory.policies import PolicyMemory
from lasthop.engine.memory.verification import VerificationMemory
from lasthop.engine.outputs.audit.certificates import CertificateReport, Used, certificates_of, each_once
from lasthop.engine.outputs.audit.hops import REFUSALS, HopReport, Reported, hop_report, joined
from lasthop.engine.outputs.envoy.assembly import Assembly, ByGateway
from lasthop.engine.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS
from lasthop.engine.outputs.envoy.listeners import LISTENERS
from lasthop.engine.outputs.envoy.routes import HOSTS, TABLE_NAMES
from lasthop.engine.outputs.envoy.secrets import CLIENT_SECRETS, SECRETS, index_gateway_secrets
from lasthop.engine.outputs.envoy.streams import STREAMS
from lasthop.engine.outputs.findings.collection import FindingCollection
from lasthop.engine.outputs.findings.findings import FINDINGS
from lasthop.engine.outputs.findings.weakenings import WEAKENED_BACKENDS
from lasthop.engine.outputs.status.crashed import crash_finding
from lasthop.engine.outputs.status.statuses import STATUS
from lasthop.engine.plan.finding import Finding, FindingChanges
from lasthop.engine.plan.knowledge import Port
from lasthop.engine.plan.upstream import EndpointAddress, EndpointsKind, Hop, Protocol
from lasthop.engine.plan.verdict import HopVerification, Verdict, Weakening, weakest
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.backends.endpoint_slices import index_slices
from lasthop.engine.resolve.backends.grants import index_grants
from lasthop.engine.resolve.backends.reach import HOPS, index_reach
from lasthop.engine.resolve.backends.xbackends import index_pods
from lasthop.engine.resolve.gateways.allowed_listeners import index_listener_sets
from lasthop.engine.resolve.gateways.gateways import index_sockets
from lasthop.engine.resolve.gateways.listener_sets import index_accepted_sets
from lasthop.engine.resolve.gateways.telemetry import TELEMETRY, index_collectors
from lasthop.engine.resolve.hops.hop_index import index_hops
from lasthop.engine.resolve.hops.verdict import VERDICTS
from lasthop.engine.resolve.hops.weakening import index_weakened
from lasthop.engine.resolve.policies.targets import index_claims, index_service_imports, index_services
from lasthop.engine.resolve.policies.waiver_index import index_waived
from lasthop.engine.resolve.routing.attachment import index_listener_hops, index_routes, index_tables, parents
from lasthop.engine.resolve.settings import SETTINGS, Settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash, NodeId
from lasthop.engine.store.stages import Changes, Gone, Indexer, Stage, Stages
from lasthop.engine.store.store import Store

STAGES: tuple[Stage, ...] = (
    # Indexes of the objects themselves.
    *(index_grants, index_slices, index_pods, index_listener_sets),
    *(index_services, index_service_imports, index_claims, TRAFFIC.index_claims, TELEMETRY.index_claims),
    # What is derived from them: ports and tables of Gateways, hosts and hops of routes, which Gateway reaches a Service, where
    # a waiver is in effect, what is verified less than it was, what fails.
    *(index_sockets, index_tables, index_gateway_secrets, index_accepted_sets, index_routes, index_listener_hops),
    *(index_collectors, index_reach, index_hops, index_waived, index_weakened),
    # What is told to Envoy, and to people.
    *(CLUSTERS, LOAD_ASSIGNMENTS, SECRETS, CLIENT_SECRETS, HOSTS, TABLE_NAMES, STREAMS, LISTENERS),
    *STATUS,
    *FINDINGS,
    # What is remembered.
    VERDICTS,
    # What is counted.
    WEAKENED_BACKENDS,
    REFUSALS,
)


JUDGED: tuple[Stage, ...] = tuple(
    stage for stage in STAGES if isinstance(stage, Indexer) or stage in (CLUSTERS, REFUSALS, VERDICTS, *FINDINGS)
)
"""Enough to say what is wrong and how hops are verified, without what Envoy and the API server are told."""

ASKED_ONCE = (CLUSTERS.name, VERDICTS.name, REFUSALS.name, *(each.name for each in FINDINGS))
"""What `Engine.judge` computes."""
URGENT = (CLUSTERS, LOAD_ASSIGNMENTS, SECRETS, CLIENT_SECRETS)
"""What names refer to."""
URGENT_NAMES = tuple(each.name for each in URGENT)


class Update(msgspec.Struct, frozen=True):
    """What has to be told to whom."""

    xds: ByGateway
    status: dict[Key, Status | None]
    """None: our part of the object's status is to be removed."""
    findings: FindingChanges
    hops: tuple[Hop, ...] = ()
    """Those whose clusters have changed."""


class Engine:
    def __init__(self, settings: Settings | None = None, now: float = 0.0) -> None:
        self.graph = Graph(now)
        self.stages = Stages(self.graph, STAGES)
        self.store = Store(self.stages)
        SETTINGS.set(self.graph, settings or Settings())
        self.policies = PolicyMemory(self.stages)
        self._causes = Causes(self.stages)
        self.verifications = VerificationMemory(self.graph, self._causes)
        self._assembly = Assembly()
        self._findings = FindingCollection()
        self._crashes: dict[NodeId, Crash] = {}

    # --- what comes in -----------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[Key, Object | None]) -> None:
        for key, obj in changes.items():
            existed = self.store.get(key) is not None
            if self.store.put(key, obj):
                self._causes.edited(key, existed=existed, exists=obj is not None)
        self.policies.applied(changes)

    def advance(self, now: float) -> None:
        self.graph.advance(now)

    # --- what goes out -----------------------------------------------------------------------------------------------

    def settle(
        self,
        limit: int | None = None,
        *,
        urgent: bool = False,
        enough: Callable[[], bool] = lambda: False,
        busy: Collection[Key] = (),
        overdue: Collection[Port] | None = None,
    ) -> Update:
        """Brings the outputs up to date. With a limit: only so many of each output, owners taking turns; call again while
        `unsettled`. Urgent: only what names refer to, so that a tightened policy waits for no route table. Busy: Gateways
        whose proxies could not take another route table now, so that none is put together in vain. Overdue: ports that wait
        for a proof no longer. What leads to the others that wait stays as it is; None: nothing does."""
        aside = self._owners(self._held(overdue))
        outputs = self.stages.settle(limit, URGENT_NAMES if urgent else None, enough, {HOSTS.name: busy}, aside)
        self._remember(outputs)
        waiting = self.stages.waiting(STREAMS, LISTENERS)
        xds = self._assembly.take(outputs, listeners_wait=waiting, held=self._held(overdue))
        status = {
            key: None if isinstance(value, Gone) else value
            for output in STATUS
            for (key,), value in output.of(outputs).items()
        }
        return Update(xds, status, self._collect_findings(outputs), tuple(Hop(*key) for key in CLUSTERS.of(outputs)))

    def _remember(self, outputs: Changes) -> None:
        self.policies.settled(outputs)
        self.verifications.settled(outputs)
        if not self.stages.waiting(VERDICTS):
            self._causes.compared()

    def _held(self, overdue: Collection[Port] | None) -> frozenset[Port]:
        return frozenset() if overdue is None else frozenset(self.policies.awaiting().keys() - set(overdue))

    def _owners(self, ports: Collection[Port]) -> frozenset[str]:
        """Returns whose edits led to these ports."""
        hops = [hop for port in ports for hop in self.policies.withheld(port)]
        routes = [route for hop in hops for route in HOPS.current(self.graph, (HOPS, *hop)) if isinstance(route, Key)]
        return frozenset(key.namespace for key in (*routes, *(service for service, _ in ports)))

    def index(self) -> None:
        """Brings up to date only what is listed of the objects, as the listeners of a Gateway, and no output."""
        self.stages.settle(only=())

    def judge(self) -> None:
        """Brings `findings` and `hops` up to date, and nothing else of what is told to Envoy and to people: for those who ask
        once about many objects that nobody serves."""
        outputs = self.stages.settle(only=ASKED_ONCE)
        self._remember(outputs)
        self._collect_findings(outputs)

    @property
    def unsettled(self) -> bool:
        return self.stages.unsettled

    @property
    def urgent(self) -> bool:
        """Whether something that names refer to is still to be computed."""
        return self.stages.waiting(*URGENT)

    @property
    def building(self) -> bool:
        """Whether something that Envoy is told is still to be computed."""
        return self.stages.waiting(CLUSTERS, SECRETS, CLIENT_SECRETS, HOSTS, STREAMS, LISTENERS)

    def unsettled_but(self, busy: Collection[Key]) -> bool:
        """Returns whether there is anything to do besides the route tables of these Gateways."""
        return self.stages.unsettled_but({HOSTS.name: busy})

    def findings(self) -> Sequence[Finding]:
        return self._findings.sorted()

    def hops(self) -> list[HopReport]:
        return joined(self.each_hop())

    def each_hop(self) -> Iterator[Reported]:
        """Yields the hops one by one, for those who have other things to do in between; what has gone by then is left out."""
        for key in list(self.stages.members(CLUSTERS)):
            if self.stages.is_member(CLUSTERS, key):
                yield hop_report(self.graph, Hop(*key))
        yield from (each for each in self.stages.members(REFUSALS).values() if isinstance(each, tuple))

    def hop_names(self) -> set[Hop]:
        """Returns every hop, whether it can be used or not."""
        return {Hop(*key) for key in self.stages.members(CLUSTERS)}

    def weakened(self) -> list[Hop]:
        """Returns the ports that are verified less than before, which nobody has acknowledged; one hop for each Gateway."""
        found = self.stages.members(WEAKENED_BACKENDS).items()
        return sorted(Hop(*member, Protocol.TCP) for member, value in found if isinstance(value, Weakening))

    def verified(self) -> dict[tuple[Key, Key, int], HopVerification]:
        """Returns how each Gateway verifies each port of a backend; what crashed is left out, and is a finding."""
        ports: dict[tuple[Key, Key, int], list[HopVerification | None]] = {}
        for (gateway, backend, port, protocol), found in self.stages.members(VERDICTS).items():
            if protocol.policed:
                known = found.verification if isinstance(found, Verdict) else None
                ports.setdefault((gateway, backend, port), []).append(known)
        return {place: weakest(filter(None, found)) for place, found in ports.items() if None not in found}

    def has_hop(self, hop: Hop) -> bool:
        return self.stages.is_member(CLUSTERS, hop)

    def addresses(self, hop: Hop) -> Container[str] | None:
        """Returns the addresses that a hop's endpoints may have; None if there is no such hop."""
        served = hop if self.has_hop(hop) else hop._replace(protocol=Protocol.AUTO)
        if not self.has_hop(served) or hop not in (served, served.for_upgrades):
            return None
        found = endpoints.attempt(self.graph, hop.backend, hop.port, hop.protocol.transport)
        if isinstance(found, Crash):
            return ()
        # The addresses behind a name are known to those who resolve it.
        return ANYTHING if found.kind is EndpointsKind.DNS else {_written(each) for each in found.endpoints}

    def serves(self, gateway: Key, route: Key) -> bool:
        """Returns whether a route is attached to a Gateway."""
        exists = route.kind in ROUTE_KINDS and self.store.get(route) is not None
        found = parents.attempt(self.graph, route) if exists else ()
        return not isinstance(found, Crash) and any(each.gateway == gateway and each.listeners for each in found)

    def certificates(self) -> list[CertificateReport]:
        return each_once(self.each_holder())

    def each_holder(self) -> Iterator[tuple[Used, ...]]:
        """Yields the certificates of each Gateway, policy and XBackend, one holder at a time."""
        for kind in ("BackendTLSPolicy", "XBackend", "Gateway"):
            for key in list(self.store.keys(kind)):
                yield certificates_of(self.graph, key)

    def _collect_findings(self, outputs: Changes) -> FindingChanges:
        if self._crashes != self.graph.crashes:
            self._crashes = dict(self.graph.crashes)
            self._findings.say("crashes", tuple(map(crash_finding, self._crashes)))
        for output in FINDINGS:
            for key, found in output.of(outputs).items():
                self._findings.say((output.name, key), () if found is None or isinstance(found, Gone) else found)
        return self._findings.changes()


class _Anything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


ANYTHING: Final = _Anything()


def _written(endpoint: EndpointAddress) -> str:
    """Returns an endpoint as Envoy writes it."""
    host = endpoint.address
    return with_port(str(ipaddress.ip_address(host)) if ":" in host else host, endpoint.port)
