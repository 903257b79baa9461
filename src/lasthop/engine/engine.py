"""The engine: turns changes of objects into changes of xDS resources, statuses and findings.

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
from lasthop.engine.outputs.audit.certificates import CertificateReport, Used, certificates_of, distinct_certificates
from lasthop.engine.outputs.audit.hops import REFUSALS, HopReport, ReportedHop, hop_report, joined
from lasthop.engine.outputs.envoy.assembly import Assembly, ByGateway
from lasthop.engine.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS
from lasthop.engine.outputs.envoy.listeners import LISTENERS
from lasthop.engine.outputs.envoy.routes import HOSTS, TABLE_NAMES
from lasthop.engine.outputs.envoy.secrets import CLIENT_SECRETS, SECRETS, index_gateway_secrets
from lasthop.engine.outputs.envoy.streams import STREAMS
from lasthop.engine.outputs.findings.collection import FindingCollection
from lasthop.engine.outputs.findings.findings import FINDINGS, WEAKENED_BACKENDS
from lasthop.engine.outputs.status.crashed import crash_finding
from lasthop.engine.outputs.status.statuses import STATUS
from lasthop.engine.plan.finding import Finding, FindingChanges
from lasthop.engine.plan.knowledge import Port
from lasthop.engine.plan.upstream import EndpointAddress, EndpointsKind, Hop, Protocol
from lasthop.engine.plan.verdict import HopVerification, Verdict, Weakening, weakest
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC
from lasthop.engine.resolve.backends.backends import endpoints, index_slices
from lasthop.engine.resolve.backends.grants import index_grants
from lasthop.engine.resolve.backends.reach import HOPS, index_reach
from lasthop.engine.resolve.backends.xbackends import index_pods
from lasthop.engine.resolve.gateways.allowed_listeners import index_listener_sets
from lasthop.engine.resolve.gateways.gateways import index_sockets
from lasthop.engine.resolve.gateways.listener_sets import index_accepted_sets
from lasthop.engine.resolve.gateways.telemetry import TELEMETRY, index_collectors
from lasthop.engine.resolve.hops.hop_index import index_hops, index_waived
from lasthop.engine.resolve.hops.verdict import VERDICTS
from lasthop.engine.resolve.hops.weakening import index_weakened
from lasthop.engine.resolve.policies.targets import index_claims, index_service_imports, index_services
from lasthop.engine.resolve.routing.attachment import index_listener_hops, index_routes, index_tables, parents
from lasthop.engine.resolve.settings import SETTINGS, Settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash, NodeId
from lasthop.engine.store.stages import Changes, Gone, Indexer, Stage, Stages
from lasthop.engine.store.store import Store

STAGES: tuple[Stage, ...] = (
    # Indexes of objects.
    *(index_grants, index_slices, index_pods, index_listener_sets),
    *(index_services, index_service_imports, index_claims, TRAFFIC.index_claims, TELEMETRY.index_claims),
    # Indexes of results: ports and tables of Gateways, hosts and hops of routes, Gateways that reach a Service, waivers in
    # effect, weakened backends, failing backends.
    *(index_sockets, index_tables, index_gateway_secrets, index_accepted_sets, index_routes, index_listener_hops),
    *(index_collectors, index_reach, index_hops, index_waived, index_weakened),
    # Outputs for Envoy, then statuses and findings.
    *(CLUSTERS, LOAD_ASSIGNMENTS, SECRETS, CLIENT_SECRETS, HOSTS, TABLE_NAMES, STREAMS, LISTENERS),
    *STATUS,
    *FINDINGS,
    # Input of the memory.
    VERDICTS,
    # Counts.
    WEAKENED_BACKENDS,
    REFUSALS,
)


JUDGED: tuple[Stage, ...] = tuple(
    stage for stage in STAGES if isinstance(stage, Indexer) or stage in (CLUSTERS, REFUSALS, VERDICTS, *FINDINGS)
)
"""The stages for findings and the verification of hops, without outputs for Envoy and the API server."""

JUDGED_OUTPUTS = (CLUSTERS.name, VERDICTS.name, REFUSALS.name, *(output.name for output in FINDINGS))
"""The outputs that `Engine.judge` computes."""
URGENT = (CLUSTERS, LOAD_ASSIGNMENTS, SECRETS, CLIENT_SECRETS)
"""The types that other resources refer to by name: they are sent first."""
URGENT_NAMES = tuple(output.name for output in URGENT)


class Update(msgspec.Struct, frozen=True):
    """Changes for the proxies, the API server and the log."""

    xds: ByGateway
    status: dict[Key, Status | None]
    """None removes our part of the object's status."""
    findings: FindingChanges
    hops: tuple[Hop, ...] = ()
    """Hops whose clusters have changed."""


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

    # --- input -----------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[Key, Object | None]) -> None:
        for key, obj in changes.items():
            existed = self.store.get(key) is not None
            if self.store.put(key, obj):
                self._causes.edited(key, existed=existed, exists=obj is not None)
        self.policies.applied(changes)

    def edited_while_stopped(self, existed: Mapping[Key, bool]) -> None:
        """Receives objects that differ from those that an earlier process read, with whether they existed."""
        for key, before in existed.items():
            self._causes.edited_while_stopped(key, existed=before, exists=self.store.get(key) is not None)

    def advance(self, now: float) -> None:
        self.graph.advance(now)

    # --- output -----------------------------------------------------------------------------------------------

    def settle(
        self,
        limit: int | None = None,
        *,
        urgent: bool = False,
        enough: Callable[[], bool] = lambda: False,
        busy: Collection[Key] = (),
        overdue: Collection[Port] | None = None,
    ) -> Update:
        """Brings the outputs up to date.

        With a `limit`, only so many members of each output change, and owners take turns; call again while `unsettled`.
        `urgent` restricts the outputs to clusters, endpoints and secrets, so that a tightened policy waits for no route table.
        `busy` Gateways get no route table now, because their proxies have not acknowledged the last one. Routes to ports that
        wait for a proof stay unchanged, except to `overdue` ports; None waits for no port."""
        delayed_owners = self._owners(self._held(overdue))
        outputs = self.stages.settle(limit, URGENT_NAMES if urgent else None, enough, {HOSTS.name: busy}, delayed_owners)
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
        """Returns the namespaces whose edits lead to these ports."""
        hops = [hop for port in ports for hop in self.policies.withheld(port)]
        routes = [route for hop in hops for route in HOPS.current(self.graph, (HOPS, *hop)) if isinstance(route, Key)]
        return frozenset(key.namespace for key in (*routes, *(service for service, _ in ports)))

    def index(self) -> None:
        """Brings only the indexes up to date, for example the listeners of a Gateway."""
        self.stages.settle(only=())

    def judge(self) -> None:
        """Brings only `findings` and `hops` up to date, for commands that check many objects once without serving them."""
        outputs = self.stages.settle(only=JUDGED_OUTPUTS)
        self._remember(outputs)
        self._collect_findings(outputs)

    @property
    def unsettled(self) -> bool:
        return self.stages.unsettled

    @property
    def urgent(self) -> bool:
        """Whether clusters, endpoints or secrets are unsettled."""
        return self.stages.waiting(*URGENT)

    @property
    def building(self) -> bool:
        """Whether resources for Envoy are unsettled."""
        return self.stages.waiting(CLUSTERS, SECRETS, CLIENT_SECRETS, HOSTS, STREAMS, LISTENERS)

    def unsettled_but(self, busy: Collection[Key]) -> bool:
        """Returns whether anything but the route tables of these Gateways is unsettled."""
        return self.stages.unsettled_but({HOSTS.name: busy})

    def findings(self) -> Sequence[Finding]:
        return self._findings.sorted()

    def hops(self) -> list[HopReport]:
        return joined(self.each_hop())

    def each_hop(self) -> Iterator[ReportedHop]:
        """Yields the hops one by one, so that callers can interleave other work. Omits hops that are removed
        meanwhile."""
        for key in list(self.stages.members(CLUSTERS)):
            if self.stages.is_member(CLUSTERS, key):
                yield hop_report(self.graph, Hop(*key))
        yield from (report for report in self.stages.members(REFUSALS).values() if isinstance(report, tuple))

    def hop_names(self) -> set[Hop]:
        """Returns all hops, even refused ones."""
        return {Hop(*key) for key in self.stages.members(CLUSTERS)}

    def weakened(self) -> list[Hop]:
        """Returns the ports whose verification is weaker than before and not acknowledged, with one hop per Gateway."""
        backends = self.stages.members(WEAKENED_BACKENDS).items()
        return sorted(Hop(*member, Protocol.TCP) for member, value in backends if isinstance(value, Weakening))

    def verified(self) -> dict[tuple[Key, Key, int], HopVerification]:
        """Returns how each Gateway verifies each port of a backend. Crashed queries are left out; they have a finding."""
        ports: dict[tuple[Key, Key, int], list[HopVerification | None]] = {}
        for (gateway, backend, port, protocol), verdict in self.stages.members(VERDICTS).items():
            if protocol.policed:
                verification = verdict.verification if isinstance(verdict, Verdict) else None
                ports.setdefault((gateway, backend, port), []).append(verification)
        return {
            place: weakest(filter(None, verifications)) for place, verifications in ports.items() if None not in verifications
        }

    def has_hop(self, hop: Hop) -> bool:
        return self.stages.is_member(CLUSTERS, hop)

    def addresses(self, hop: Hop) -> Container[str] | None:
        """Returns the possible addresses of a hop's endpoints; None if the hop does not exist."""
        served = hop if self.has_hop(hop) else hop._replace(protocol=Protocol.AUTO)
        if not self.has_hop(served) or hop not in (served, served.for_upgrades):
            return None
        endpoint_set = endpoints.attempt(self.graph, hop.backend, hop.port, hop.protocol.transport)
        if isinstance(endpoint_set, Crash):
            return ()
        # Only the resolver knows the addresses behind a DNS name.
        return (
            ALL_ADDRESSES
            if endpoint_set.kind is EndpointsKind.DNS
            else {_written(endpoint) for endpoint in endpoint_set.endpoints}
        )

    def serves(self, gateway: Key, route: Key) -> bool:
        """Returns whether a route is attached to a Gateway."""
        exists = route.kind in ROUTE_KINDS and self.store.get(route) is not None
        attached = parents.attempt(self.graph, route) if exists else ()
        return not isinstance(attached, Crash) and any(parent.gateway == gateway and parent.listeners for parent in attached)

    def certificates(self) -> list[CertificateReport]:
        return distinct_certificates(self.each_holder())

    def each_holder(self) -> Iterator[tuple[Used, ...]]:
        """Yields the certificates of each Gateway, policy and XBackend, one object at a time."""
        for kind in ("BackendTLSPolicy", "XBackend", "Gateway"):
            for key in list(self.store.keys(kind)):
                yield certificates_of(self.graph, key)

    def _collect_findings(self, outputs: Changes) -> FindingChanges:
        if self._crashes != self.graph.crashes:
            self._crashes = dict(self.graph.crashes)
            self._findings.replace("crashes", tuple(map(crash_finding, self._crashes)))
        for output in FINDINGS:
            for key, findings in output.of(outputs).items():
                self._findings.replace((output.name, key), () if findings is None or isinstance(findings, Gone) else findings)
        return self._findings.changes()


class _AllAddresses(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


ALL_ADDRESSES: Final = _AllAddresses()


def _written(endpoint: EndpointAddress) -> str:
    """Returns an endpoint as Envoy writes it."""
    host = endpoint.address
    return with_port(str(ipaddress.ip_address(host)) if ":" in host else host, endpoint.port)
