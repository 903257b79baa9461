"""The engine: objects in, changes out. No clock, no sockets; everything that runs Lasthop runs this.

Batch ──> Store ──> Graph (STAGES in order) ──> Update: xDS changes by Gateway, status by object, findings
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from lasthop.api.meta import Key, Object
from lasthop.api.status import Status
from lasthop.outputs.audit.certificates import CertificateReport, Used, certificates_of, each_once
from lasthop.outputs.audit.hops import HopReport, Reported, hop_report, joined
from lasthop.outputs.envoy.assembly import Assembly, ByGateway
from lasthop.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS
from lasthop.outputs.envoy.listeners import LISTENERS
from lasthop.outputs.envoy.routes import HOSTS, TABLE_NAMES
from lasthop.outputs.envoy.secrets import GATEWAY_SECRETS, HOP_SECRETS, SECRETS
from lasthop.outputs.envoy.streams import STREAMS
from lasthop.outputs.status.crashed import crash_finding, or_crashed
from lasthop.outputs.status.downgrades import APPLIED
from lasthop.outputs.status.findings import FINDINGS
from lasthop.outputs.status.gateways import CLASS_STATUS, GATEWAY_STATUS
from lasthop.outputs.status.listener_sets import LISTENER_SET_STATUS
from lasthop.outputs.status.policies import POLICY_STATUS, REJECTED_STATUS, UNSERVED_STATUS
from lasthop.outputs.status.routes import ROUTE_STATUS
from lasthop.outputs.status.xbackends import XBACKEND_STATUS
from lasthop.plan.finding import Finding
from lasthop.plan.upstream import Hop
from lasthop.policy_memory import PolicyMemory
from lasthop.resolve.allowed_listeners import LISTENER_SETS
from lasthop.resolve.attachment import ATTACHMENTS, TABLES
from lasthop.resolve.backends import REACH, SLICES
from lasthop.resolve.gateways import SOCKETS
from lasthop.resolve.grants import GRANTS
from lasthop.resolve.listener_sets import ACCEPTED_SETS
from lasthop.resolve.missing_endpoints import STRAYS
from lasthop.resolve.policies.degraded import WAIVED, WAIVED_PORTS
from lasthop.resolve.policies.targets import CLAIMS, MISAIMED, REJECTED_CLAIMS, SERVICES
from lasthop.resolve.settings import SETTINGS, Settings
from lasthop.resolve.xbackends import LABELLED
from lasthop.store.graph import GONE, Crash, Graph, NodeId, Output, Stage
from lasthop.store.store import Store

STATUS = tuple(
    Output(stage.name, stage.domain, or_crashed(stage.value))
    for stage in (
        *(CLASS_STATUS, GATEWAY_STATUS, LISTENER_SET_STATUS, *ROUTE_STATUS),
        *(POLICY_STATUS, REJECTED_STATUS, XBACKEND_STATUS, *UNSERVED_STATUS),
    )
)

STAGES: tuple[Stage, ...] = (
    # Indexes of the objects themselves.
    *(GRANTS, SLICES, STRAYS, LABELLED, LISTENER_SETS, CLAIMS, REJECTED_CLAIMS, SERVICES, MISAIMED),
    # What is derived from them: ports and tables of Gateways, hosts and hops of routes, which Gateway reaches a Service, where
    # a waiver is in effect.
    *(SOCKETS, TABLES, GATEWAY_SECRETS, ACCEPTED_SETS, *ATTACHMENTS, REACH, HOP_SECRETS, WAIVED_PORTS, WAIVED),
    # What is told to Envoy, and to people.
    *(CLUSTERS, LOAD_ASSIGNMENTS, SECRETS, HOSTS, TABLE_NAMES, STREAMS, LISTENERS),
    *STATUS,
    *FINDINGS,
    # What is remembered.
    APPLIED,
)


URGENT = (CLUSTERS.name, LOAD_ASSIGNMENTS.name, SECRETS.name)


class Update(msgspec.Struct, frozen=True):
    """What has to be told to whom."""

    xds: ByGateway
    status: dict[Key, Status | None]
    """None: nothing of ours is to stand in the object's status any more."""
    findings: bool
    """Whether `Engine.findings()` has changed."""


class Engine:
    def __init__(self, settings: Settings | None = None, now: float = 0.0) -> None:
        self.graph = Graph(STAGES, now)
        self.store = Store(self.graph)
        SETTINGS.set(self.graph, settings or Settings())
        self.policies = PolicyMemory(self.graph)
        self._assembly = Assembly()
        self._findings: dict[tuple[str, Any], tuple[Finding, ...]] = {}
        self._crashes: dict[NodeId, Crash] = {}

    # --- what comes in -----------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[Key, Object | None]) -> None:
        self.store.apply(changes)
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
    ) -> Update:
        """With a limit: only so many of each output, until there is enough, owners taking turns; call again while `unsettled`.
        Urgent: only what stands behind names, so that a tightened policy waits for no route table. Busy: Gateways whose
        proxies could not take another route table now, so that none is put together in vain."""
        outputs = self.graph.settle(limit, URGENT if urgent else None, enough, {HOSTS.name: busy})
        self.policies.settled(outputs)
        xds = self._assembly.take(outputs, streams_wait=self.graph.waiting(STREAMS.name, LISTENERS.name))
        status = {
            key: None if value is GONE else value
            for output in STATUS
            for (key,), value in outputs.get(output.name, {}).items()
        }
        return Update(xds, status, self._collect_findings(outputs))

    @property
    def unsettled(self) -> bool:
        return self.graph.unsettled

    @property
    def building(self) -> bool:
        """Whether something that Envoy is told is still to be worked out."""
        return self.graph.waiting(*(output.name for output in (CLUSTERS, SECRETS, HOSTS, STREAMS, LISTENERS)))

    def unsettled_but(self, busy: Collection[Key]) -> bool:
        """Whether there is anything to do besides the route tables of these Gateways."""
        return self.graph.unsettled_but({HOSTS.name: busy})

    def findings(self) -> list[Finding]:
        """Each once: several hops may say the same of one Service."""
        crashed = {crash_finding(id) for id in self._crashes}
        return sorted({*crashed, *(finding for group in self._findings.values() for finding in group)})

    def hops(self) -> list[HopReport]:
        return joined(self.each_hop())

    def each_hop(self) -> Iterator[Reported]:
        """One by one, for those who have other things to do in between; what has gone by then is left out."""
        for key in list(self.graph.members(CLUSTERS.name)):
            if self.graph.is_member(CLUSTERS.name, key):
                yield hop_report(self.graph, Hop(*key))

    def certificates(self) -> list[CertificateReport]:
        return each_once(self.each_holder())

    def each_holder(self) -> Iterator[tuple[Used, ...]]:
        """The certificates of each Gateway, policy and XBackend, one holder at a time."""
        for kind in ("BackendTLSPolicy", "XBackend", "Gateway"):
            for key in list(self.store.keys(kind)):
                yield certificates_of(self.graph, key)

    def _collect_findings(self, outputs: Mapping[str, Mapping[Any, Any]]) -> bool:
        changed = self._crashes != self.graph.crashes
        self._crashes = dict(self.graph.crashes)
        for output in FINDINGS:
            for key, found in outputs.get(output.name, {}).items():
                old = self._findings.pop((output.name, key), ())
                new = () if found in (GONE, None) else found
                if new:
                    self._findings[(output.name, key)] = new
                changed |= old != new
        return changed
