"""The engine: objects in, changes out. No clock, no sockets; everything that runs Lasthop runs this.

Batch ──> Store ──> Graph (STAGES in order) ──> Update: xDS changes by Gateway, status by object, findings
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from lasthop.api.meta import Key, Object, StringMap
from lasthop.api.status import Status
from lasthop.outputs.audit.certificates import CertificateReport, Used, certificates_of, each_once
from lasthop.outputs.audit.hops import HopReport, Reported, hop_report, joined
from lasthop.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS, ClusterEntry
from lasthop.outputs.envoy.listeners import LISTENERS
from lasthop.outputs.envoy.quarantine import QUARANTINE
from lasthop.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Change, Resource, Withdrawal
from lasthop.outputs.envoy.routes import HOSTS, TABLE_NAMES, EncodedHost, refused_host, route_table, table_name
from lasthop.outputs.envoy.secrets import SECRETS, index_gateway_secrets, index_hop_secrets
from lasthop.outputs.envoy.streams import STREAMS, EncodedStream, with_streams
from lasthop.outputs.findings.downgrades import APPLIED
from lasthop.outputs.findings.findings import FINDINGS
from lasthop.outputs.status.crashed import crash_finding, or_crashed
from lasthop.outputs.status.gateways import CLASS_STATUS, GATEWAY_STATUS
from lasthop.outputs.status.listener_sets import LISTENER_SET_STATUS
from lasthop.outputs.status.policies import POLICY_STATUS, REJECTED_STATUS, UNSERVED_STATUS
from lasthop.outputs.status.routes import ROUTE_STATUS
from lasthop.outputs.status.xbackends import XBACKEND_STATUS
from lasthop.plan.finding import Finding
from lasthop.plan.infrastructure import Infrastructure
from lasthop.plan.proxy import ProxyState
from lasthop.plan.tls import BackendTLS, Refused, SystemStore
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.allowed_listeners import index_listener_sets
from lasthop.resolve.attachment import MISDIRECTED, index_routes, index_tables
from lasthop.resolve.backends import index_slices
from lasthop.resolve.gateways import index_sockets
from lasthop.resolve.grants import index_grants
from lasthop.resolve.hops import HAD_POLICY, SERVED_PLAINTEXT, hop_tls
from lasthop.resolve.listener_sets import index_accepted_sets
from lasthop.resolve.missing_endpoints import index_stray_slices
from lasthop.resolve.policies.targets import (
    index_claims,
    index_misaimed,
    index_rejected_claims,
    index_services,
    named_services,
)
from lasthop.resolve.policies.waiver_index import index_waived, index_waived_ports
from lasthop.resolve.ports import PROBES, Probe
from lasthop.resolve.reach import index_reach
from lasthop.resolve.refused_pairs import REFUSED_PAIRS
from lasthop.resolve.settings import (
    CRD_VERSIONS,
    INFRASTRUCTURE,
    POLICIES_DOUBTFUL,
    POLICIES_UNKNOWN,
    PROXIES,
    SETTINGS,
    SYSTEM_STORE,
    Settings,
)
from lasthop.resolve.xbackends import index_labels
from lasthop.store.graph import Graph
from lasthop.store.node import Crash, NodeId
from lasthop.store.stages import GONE, Changes, Gone, Output, Stage, Stages
from lasthop.store.store import Store
from lasthop.store.turns import Member

STATUS = tuple(
    Output(stage.name, stage.domain, or_crashed(stage.value))
    for stage in (
        *(CLASS_STATUS, GATEWAY_STATUS, LISTENER_SET_STATUS, *ROUTE_STATUS),
        *(POLICY_STATUS, REJECTED_STATUS, XBACKEND_STATUS, *UNSERVED_STATUS),
    )
)

STAGES: tuple[Stage, ...] = (
    # Indexes of the objects themselves.
    *(index_grants, index_slices, index_stray_slices, index_labels, index_listener_sets),
    *(index_claims, index_rejected_claims, index_services, index_misaimed),
    # What is derived from them: ports and tables of Gateways, hosts and hops of routes, which Gateway reaches a Service, where
    # a waiver is in effect.
    *(index_sockets, index_tables, index_gateway_secrets, index_accepted_sets, index_routes),
    *(index_reach, index_hop_secrets, index_waived_ports, index_waived),
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

    xds: dict[Key, dict[str, dict[str, Change]]]
    """By Gateway, then by type and name."""
    status: dict[Key, Status | None]
    """None: nothing of ours is to stand in the object's status any more."""
    findings: bool
    """Whether `Engine.findings()` has changed."""


class Engine:
    def __init__(self, settings: Settings | None = None, now: float = 0.0) -> None:
        self.graph = Graph(now)
        self.stages = Stages(self.graph, STAGES)
        self.store = Store(self.stages)
        SETTINGS.set(self.graph, settings or Settings())
        self._endpoint_names: dict[Hop, str] = {}
        self._listeners: dict[str, Resource] = {}
        """By name, without their streams."""
        self._listener_names: dict[Key, set[str]] = {}
        self._streams: dict[str, dict[tuple[Key, str, str], EncodedStream]] = {}
        """By listener."""
        self._stream_listeners: dict[tuple[Key, str, str], str] = {}
        self._changed_listeners: dict[str, Key] = {}
        """Those that are still to be sent, each with its Gateway."""
        self._hosts: dict[str, dict[str, EncodedHost]] = {}
        self._tables: set[tuple[Key, str]] = set()
        self._plaintext: set[Hop] = set()
        self._marks: dict[tuple[Key, int], Hop] = {}
        """Ports that stay plaintext while not every policy is known, each with one of its hops."""
        self._hops: dict[tuple[Key, int], set[Hop]] = {}
        """Those that policies may apply to, by Service and port."""
        self.last_policies_version = 0
        """Grows whenever `last_policies` changes."""
        self._findings: dict[tuple[str, Member], tuple[Finding, ...]] = {}
        self._crashes: dict[NodeId, Crash] = {}

    # --- what comes in -----------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[Key, Object | None]) -> None:
        self.store.apply(changes)
        if self._marks and (named := {service for obj in changes.values() for service in named_services(obj)}):
            self._unmark_claimed([port for port in self._marks if port[0] in named])

    def set_policies_known(self, known: bool) -> None:
        """Not knowing every policy freezes what is plaintext now: nothing joins it until all are known again, and what a
        policy has named in the meantime leaves it, because that policy may be the one that cannot be read next."""
        if bool(POLICIES_UNKNOWN.peek(self.graph)) != known:
            return
        POLICIES_UNKNOWN.set(self.graph, None if known else True)
        if known:
            self._unmark(tuple(self._marks))
            return
        for hop in self._plaintext:
            if hop.backend.kind == "Service" and (hop.backend, hop.port) not in self._marks:
                self._marks[hop.backend, hop.port] = hop
                SERVED_PLAINTEXT.set(self.graph, True, hop.backend, hop.port)
        self._unmark_claimed(self._marks)

    def _unmark_claimed(self, ports: Iterable[tuple[Key, int]]) -> None:
        """Looks at what has come in, settled or not: a policy that comes and goes between two looks was there too."""
        self.stages.settle(0)
        self._unmark([port for port in ports if self._claimed(self._marks[port])])

    def _claimed(self, hop: Hop) -> bool:
        try:
            tls = hop_tls(self.graph, *hop._replace(protocol=Protocol.TCP))
        except Exception:  # a bug must not count as "no policy"
            return True
        return isinstance(tls, BackendTLS | Refused) and tls.source is not None

    def _unmark(self, ports: Iterable[tuple[Key, int]]) -> None:
        for port in ports:
            del self._marks[port]
            SERVED_PLAINTEXT.set(self.graph, None, *port)

    def recall_policies(self, last: Mapping[tuple[Key, int], Key]) -> None:
        """Takes what was remembered when this last ran, before anything is read."""
        for port, policy in last.items():
            HAD_POLICY.set(self.graph, policy, *port)

    def set_policies_doubtful(self, doubtful: bool) -> None:
        """Some text cannot be read and an older one is in force: what loses its policy now has perhaps not lost it."""
        POLICIES_DOUBTFUL.set(self.graph, True if doubtful else None)

    def set_crd_versions(self, versions: StringMap) -> None:
        CRD_VERSIONS.set(self.graph, versions)

    def set_system_store(self, store: SystemStore | None) -> None:
        SYSTEM_STORE.set(self.graph, store)

    def set_proxy(self, gateway: Key, state: ProxyState) -> None:
        PROXIES.set(self.graph, state, gateway)

    def set_infrastructure(self, gateway: Key, state: Infrastructure) -> None:
        INFRASTRUCTURE.set(self.graph, state, gateway)

    def set_probe(self, gateway: Key, address: str, port: int, probe: Probe | None, transport: str = "TCP") -> None:
        PROBES.set(self.graph, probe, gateway, address, port, transport)

    def set_quarantine(self, type_url: str, part: str, digest: str, complaint: str | None) -> None:
        """Empty complaint: the part is only one of several suspects."""
        self.graph.set(_refusal_input(type_url, part, digest), complaint)

    def is_built(self, type_url: str, part: str, digest: str) -> bool:
        """Whether something would have this part at this content, were it not in quarantine."""
        return bool(self.graph.readers_at(_refusal_input(type_url, part, digest)))

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
        outputs = self.stages.settle(limit, URGENT if urgent else None, enough, {HOSTS.name: busy})
        xds = _Changes()
        for hop_key, entry in CLUSTERS.of(outputs).items():
            self._cluster(xds, Hop(*hop_key), entry)
        for hop_key, resource in LOAD_ASSIGNMENTS.of(outputs).items():
            self._load_assignment(xds, Hop(*hop_key), resource)
        for (gateway, secret), resource in SECRETS.of(outputs).items():
            xds.put(gateway, SECRET, secret.path, resource)
        self._route_tables(xds, outputs)
        self._join_listeners(xds, outputs)
        for hop_key, policy in APPLIED.of(outputs).items():
            self._remember(Hop(*hop_key), policy)
        status = {
            key: None if isinstance(value, Gone) else value
            for output in STATUS
            for (key,), value in output.of(outputs).items()
        }
        return Update(xds.by_gateway, status, self._collect_findings(outputs))

    @property
    def unsettled(self) -> bool:
        return self.stages.unsettled

    @property
    def building(self) -> bool:
        """Whether something that Envoy is told is still to be worked out."""
        return self.stages.waiting(CLUSTERS, SECRETS, HOSTS, STREAMS, LISTENERS)

    def unsettled_but(self, busy: Collection[Key]) -> bool:
        """Whether there is anything to do besides the route tables of these Gateways."""
        return self.stages.unsettled_but({HOSTS.name: busy})

    def last_policies(self) -> dict[tuple[Key, int], Key]:
        """The policy that each Service port had last, of those that a route leads to."""
        found = {port: HAD_POLICY.peek(self.graph, *port) for port in self._hops}
        return {port: policy for port, policy in found.items() if policy is not None}

    def findings(self) -> list[Finding]:
        """Each once: several hops may say the same of one Service."""
        crashed = {crash_finding(id) for id in self._crashes}
        return sorted({*crashed, *(finding for group in self._findings.values() for finding in group)})

    def hops(self) -> list[HopReport]:
        return joined(self.each_hop())

    def each_hop(self) -> Iterator[Reported]:
        """One by one, for those who have other things to do in between; what has gone by then is left out."""
        for key in list(self.stages.members(CLUSTERS)):
            if self.stages.is_member(CLUSTERS, key):
                yield hop_report(self.graph, Hop(*key))

    def certificates(self) -> list[CertificateReport]:
        return each_once(self.each_holder())

    def each_holder(self) -> Iterator[tuple[Used, ...]]:
        """The certificates of each Gateway, policy and XBackend, one holder at a time."""
        for kind in ("BackendTLSPolicy", "XBackend", "Gateway"):
            for key in list(self.store.keys(kind)):
                yield certificates_of(self.graph, key)

    def _cluster(self, xds: _Changes, hop: Hop, entry: ClusterEntry | Gone | None) -> None:
        if isinstance(entry, ClusterEntry) and entry.plaintext and hop.protocol.policed:
            self._plaintext.add(hop)
        else:
            self._plaintext.discard(hop)
            if (hop.backend, hop.port) in self._marks and self._claimed(hop):
                self._unmark([(hop.backend, hop.port)])
        # A hop that is still wanted but has no cluster must fail at once; one that nobody wants goes when nobody names it.
        xds.put(hop.gateway, CLUSTER, hop.name, entry.resource if isinstance(entry, ClusterEntry) else entry)

    def _remember(self, hop: Hop, policy: Key | Gone | None) -> None:
        """Keeps the last policy of each Service port that a route leads to."""
        port = (hop.backend, hop.port)
        hops = self._hops.setdefault(port, set())
        if not isinstance(policy, Gone):
            hops.add(hop)
            if policy is not None:
                self.last_policies_version += HAD_POLICY.set(self.graph, policy, *port)
            return
        hops.discard(hop)
        if not hops:
            del self._hops[port]
            self.last_policies_version += HAD_POLICY.set(self.graph, None, *port)

    def _load_assignment(self, xds: _Changes, hop: Hop, resource: Resource | Gone | None) -> None:
        name = resource.name if isinstance(resource, Resource) else ""
        old = self._endpoint_names.pop(hop, "")
        if old and old != name:
            xds.put(hop.gateway, ENDPOINTS, old, GONE)
        if isinstance(resource, Resource):
            self._endpoint_names[hop] = name
            xds.put(hop.gateway, ENDPOINTS, name, resource)

    def _route_tables(self, xds: _Changes, changes: Changes) -> None:
        changed = set()
        for (gateway, table), name in TABLE_NAMES.of(changes).items():
            (self._tables.discard if name is GONE else self._tables.add)((gateway, table))
            changed.add((gateway, table))
        for (gateway, table, hostname), host in HOSTS.of(changes).items():
            known = self._hosts.setdefault(table_name(gateway, table), {})
            if host is GONE:
                known.pop(hostname, None)
            elif isinstance(host, EncodedHost):
                known[hostname] = host
            elif hostname != MISDIRECTED:
                known[hostname] = refused_host(hostname)
            changed.add((gateway, table))
        for gateway, table in changed:
            name = table_name(gateway, table)
            if (gateway, table) in self._tables:
                xds.put(gateway, ROUTES, name, route_table(name, self._hosts.get(name, {})))
            else:
                xds.put(gateway, ROUTES, name, GONE)
                if not self._hosts.get(name):
                    self._hosts.pop(name, None)

    def _join_listeners(self, xds: _Changes, changes: Changes) -> None:
        changed = self._changed_listeners
        for (gateway,), resources in LISTENERS.of(changes).items():
            if resources is None:
                continue  # a crash: what is there stays, with its tables and secrets
            new = {resource.name: resource for resource in (() if isinstance(resources, Gone) else resources)}
            old = self._listener_names.pop(gateway, set())
            changed.update(dict.fromkeys((*old, *new), gateway))
            for name in old - new.keys():
                del self._listeners[name]
            self._listeners |= new
            if new:
                self._listener_names[gateway] = set(new)
        for key, found in STREAMS.of(changes).items():
            for name in {self._stream_listeners.pop(key, ""), getattr(found, "listener", "")} - {""}:
                changed[name] = key[0]
                known = self._streams.setdefault(name, {})
                known.pop(key, None)
                if isinstance(found, EncodedStream) and found.listener == name:
                    known[key] = found
                    self._stream_listeners[key] = name
                if not known:
                    del self._streams[name]
        # Only whole: two chains that match the same, if only for a moment, would have the listener refused.
        if self.stages.waiting(STREAMS, LISTENERS):
            return
        self._changed_listeners = {}
        for name, gateway in sorted(changed.items()):
            base, own = self._listeners.get(name), self._streams.get(name, {})
            xds.put(gateway, LISTENER, name, (with_streams(base, own.values()) if base else None) or GONE)

    def _collect_findings(self, outputs: Changes) -> bool:
        changed = self._crashes != self.graph.crashes
        self._crashes = dict(self.graph.crashes)
        for output in FINDINGS:
            for key, found in output.of(outputs).items():
                old = self._findings.pop((output.name, key), ())
                new = () if found is None or isinstance(found, Gone) else found
                if new:
                    self._findings[(output.name, key)] = new
                changed |= old != new
        return changed


def _refusal_input(type_url: str, part: str, digest: str) -> NodeId:
    return (REFUSED_PAIRS, part, digest) if type_url == SECRET else (QUARANTINE, type_url, part, digest)


class _Changes:
    def __init__(self) -> None:
        self.by_gateway: dict[Key, dict[str, dict[str, Change]]] = {}

    def put(self, gateway: Key, type_url: str, name: str, value: Resource | Gone | None) -> None:
        """`value`: a Resource; GONE when nobody names it any more; None when it must fail at once."""
        change: Change = value if isinstance(value, Resource) else Withdrawal(urgent=value is not GONE)
        self.by_gateway.setdefault(gateway, {}).setdefault(type_url, {})[name] = change
