"""Runs the controller in a cluster: objects from the API server, proxies as Deployments, statuses written by the leader.

KubernetesSource ──> Controller ──> xDS over mTLS ──> proxies
                         ├──status, findings──> StatusUpdater   (only while we hold the Lease, like Deployments and the CA)
                         └──acknowledgements, observations──> the leader   (only while another replica leads)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from lasthop.base.api import gateway as api
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.profiles import ProxySettings
from lasthop.base.pki.certificates import PemKeyPair
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.contact import PROBE_INTERVAL, PROBE_WITHIN, Contact
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.lease import Leadership
from lasthop.edge.proxy.supervisor import Proxy
from lasthop.edge.sinks.kubernetes.status_updater import StatusUpdater
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.edge.xds.acks import AckReport
from lasthop.edge.xds.observing import ProxiesHere
from lasthop.edge.xds.replicas import ContactAges, Reporter
from lasthop.engine.engine import Engine
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.observation import ProxyReport
from lasthop.engine.resolve.gateways.profiles import proxy_settings
from lasthop.engine.resolve.settings import IN_CLUSTER, INFRASTRUCTURE
from lasthop.engine.store.node import Crash
from lasthop.engine.what_if import Rehearsal
from lasthop.run import loop
from lasthop.run.controller import Controller
from lasthop.run.infra.kubernetes.deployments import Deployments
from lasthop.run.infra.kubernetes.desired import Site, desired_gateway
from lasthop.run.infra.kubernetes.identity import Identity
from lasthop.run.infra.kubernetes.verification_memory import VerificationConfigMap
from lasthop.run.infra.kubernetes.webhook import WebhookTrust, service_name
from lasthop.run.infra.system_store import host_store

ADDRESS: Final = "lasthop.dev/xds-address"
"""Annotation of the Lease: the address at which its holder receives the other replicas' reports."""


CUT_OFF: Final = "this replica has lost the API server and another one has not, so the other one serves the proxies"


class ClusterRuntime(Sink, Leadership, ContactAges):
    def __init__(
        self,
        client: Client,
        site: Site,
        *,
        identity: str,
        namespace: str,
        xds_listen: str,
        own_address: str,
        namespaces: tuple[str, ...] = (),
        webhook: bool = False,
    ) -> None:
        """`identity` is this replica's name, `own_address` its address for other replicas, `namespace` that of Lease and CA.
        `webhook`: edits are judged before they are written."""
        self.source = KubernetesSource(client, namespaces=namespaces)
        self.proxies: Mapping[Key, Proxy] = {}
        """No proxies run on this host."""
        engine = Engine(IN_CLUSTER, now=time.time())
        self.rehearsal = Rehearsal(IN_CLUSTER, time.time()) if webhook else None
        self.updater = StatusUpdater(
            client,
            self.source.observed,
            identity=identity,
            namespace=namespace,
            uid_of=engine.store.uid,
            annotations={ADDRESS: own_address},
            leadership=self,
        )
        self.controller = Controller(self.source, engine, host_store, (self.updater, self), who=self.source.author)
        register_metrics(self.controller.metrics, self.updater, self.source)
        replicas = Gauge(
            "lasthop_replicas_reporting", "Other replicas that report to this one.", registry=self.controller.metrics
        )
        replicas.set_function(lambda: len(self.controller.fleet.acks.replicas))
        self._log = self.controller.log
        server_name = site.xds_server_name or site.xds_host
        self._identity = Identity(
            client,
            namespace,
            tuple(dict.fromkeys((server_name, site.xds_host, *([service_name(namespace)] if webhook else ())))),
            identity,
            may_write=self.updater.may_write,
            problem=lambda text: self._log.error(text) if text else None,
        )
        self._here = ProxiesHere()
        self._reporter = Reporter(
            self._leader,
            self._identity.client_credentials,
            server_name,
            self.controller.fleet.report,
            observed=lambda: self._here.recent(time.monotonic()),
            problem=lambda text: self._log.warning(text) if text else None,
            ages=self,
        )
        self._deployments = Deployments(
            client,
            site,
            authority=lambda: self._identity.authority,
            changed=self._infrastructure_changed,
            may_write=self.updater.may_write,
            namespaces=namespaces,
        )
        self._memory = memory_of(client, namespace, self.controller, self.updater)
        self._webhook_trust = WebhookTrust(
            client,
            namespace,
            trusted=lambda: self._identity.authority.bundle if self._identity.authority else b"",
            may_write=self.updater.may_write,
            problem=self._log.warning,
        )
        self._client, self._contact = client, Contact(time.monotonic())
        self._xds_listen = xds_listen
        self._leading, self._lost = asyncio.Event(), asyncio.Event()
        self._uids: dict[str, Key] = {}
        self._stopping = asyncio.Event()

    def objects_changed(self, changes: Mapping[Key, Object | None]) -> None:
        if self.rehearsal:
            self.rehearsal.changed(changes)

    @property
    def certified(self) -> asyncio.Event:
        """Set once there is a certificate."""
        return self._identity.known

    def certificate(self) -> PemKeyPair:
        """Returns the certificate of this replica's servers; its names include the webhook's."""
        return self._identity.credentials().own

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        desired, engine = {}, self.controller.engine
        for key, plan in gateways.items():
            obj = engine.store.get(key)
            if isinstance(obj, api.Gateway):
                settings = proxy_settings.attempt(engine.graph, key)
                if isinstance(settings, Crash):
                    desired[key] = msgspec.structs.replace(desired_gateway(obj, plan, ProxySettings()), hold=True)
                else:
                    desired[key] = desired_gateway(obj, plan, settings)
        self._uids = {gateway.uid: key for key, gateway in desired.items()}
        self._deployments.want(desired)

    def proxies_changed(self) -> None:
        self._reporter.changed.set()

    @property
    def requests(self) -> None:
        """None: the proxies and their logs are elsewhere."""

    def unready(self) -> list[str]:
        """Returns why this replica is not ready, if so. It is ready once every kind has been read and the xDS server has its
        certificate, and while no other replica can serve proxies better. The proxies have a readiness of their own."""
        certificate = [] if self._identity.known.is_set() else ["the xDS server has no certificate yet"]
        return [*self.controller.unready(), *certificate, *([CUT_OFF] if self._contact.cut_off else [])]

    async def run(self) -> None:
        """Runs until `stop`; proxies keep running."""
        server = self.controller.server
        self.controller.recall(await self._memory.load())
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(loop.run(self.controller)), tasks.create_task(self._deploy())]
                await self.controller.loaded.wait()
                # A replica that has not read everything must not lead, because it could not write, and others could.
                running += [tasks.create_task(work()) for work in (self.updater.run, self._identity.run, self._memory.run)]
                await self._identity.known.wait()
                await self._listen()
                # Only now does anything go out: before every kind has been read once, "no policy" is not known.
                server.open()
                running += [tasks.create_task(self._reporter.run()), tasks.create_task(self._keep_contact())]
                if self.rehearsal:
                    running.append(tasks.create_task(self._webhook_trust.run()))
                self._log.info("serving proxies", address=self._xds_listen)
                await self._stopping.wait()
                await self._memory.finish()
                for task in running:
                    task.cancel()
        finally:
            await server.close()

    def stop(self) -> None:
        self._stopping.set()

    async def _listen(self) -> None:
        engine = self.controller.engine
        await self.controller.server.start_tls(
            self._xds_listen, self._identity.credentials, self._gateway_of, self._heard, self._seen, engine, self
        )

    async def _keep_contact(self) -> None:
        """Hands the proxies over while this replica has lost the API server and another one has not."""
        serving = True
        while True:
            await asyncio.sleep(PROBE_INTERVAL)
            await self._probe()
            if self._contact.cut_off and serving:
                self._log.error(CUT_OFF)
                await self.controller.server.hand_over()
            elif not self._contact.cut_off and not serving:
                await self._listen()
                self._log.info("serving proxies again: the API server responds", address=self._xds_listen)
            serving = not self._contact.cut_off

    async def _probe(self) -> None:
        if time.monotonic() - self._client.heard >= PROBE_INTERVAL:
            try:
                await self._client.request("GET", "/readyz", within=PROBE_WITHIN)
            except ApiError as error:
                if not error.status or error.status >= 500:
                    self._contact.failed()
        self._contact.heard(self._client.heard)

    def age(self) -> float:
        self._contact.heard(self._client.heard)
        return self._contact.age(time.monotonic())

    def peer(self, age: float) -> None:
        self._contact.record_peer_contact(age, time.monotonic())

    def started_leading(self) -> None:
        self._log.info("leading: this replica writes statuses and manages the proxies")
        self._lost.clear()
        self._leading.set()

    def stopped_leading(self) -> None:
        self._leading.clear()
        self._lost.set()
        self.controller.do(self.controller.fleet.forget_replicas())

    def _leader(self) -> str:
        """Returns the leader's address; empty while this replica or none leads."""
        elector = self.updater.elector
        return "" if elector.leading or not elector.holder else elector.holder_annotations.get(ADDRESS, "")

    def _heard(self, replica: str, report: AckReport) -> bool:
        if not self.updater.elector.certain:
            return False
        self.controller.do(self.controller.fleet.heard(replica, report, time.monotonic()))
        return True

    def _seen(self, report: ProxyReport, passed_on: bool) -> Generator[None, None, bool]:
        """Records a proxy's observations, also while another replica leads, because this one may lead next."""
        if passed_on and not self.updater.elector.certain:
            return False
        if not passed_on:
            self._here.take(report, time.monotonic())
        yield from self.controller.seeing(report)
        return True

    def _gateway_of(self, uid: str) -> Key | None:
        return self._uids.get(uid)

    async def _deploy(self) -> None:
        """Runs Deployments while this replica leads. Losing the Lease cancels that immediately."""
        while True:
            await self._leading.wait()
            await self._identity.refresh()
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self._deployments.run())
                await self._lost.wait()
                running.cancel()

    def _infrastructure_changed(self, key: Key, state: Infrastructure) -> None:
        INFRASTRUCTURE.set(self.controller.engine.graph, state, key)
        self.controller.dirty.set()


def memory_of(client: Client, namespace: str, controller: Controller, updater: StatusUpdater) -> VerificationConfigMap:
    return VerificationConfigMap(
        client,
        namespace,
        version=controller.remembered_version,
        current=controller.remembered,
        may_write=updater.may_write,
        problem=controller.log.warning,
        lost=controller.record_lost,
        adopt=controller.record.merge,
    )


def register_metrics(registry: CollectorRegistry, updater: StatusUpdater, source: KubernetesSource) -> None:
    """Registers the metrics of every controller with an API server."""
    writer, elector = updater.writer, updater.elector
    for counter in (writer.counts, updater.events.counts, source.restarts):
        registry.register(counter)
    leader = Gauge("lasthop_leader", "Whether this replica holds the Lease, and so writes.", registry=registry)
    leader.set_function(lambda: elector.certain)
    pending = Gauge("lasthop_status_pending", "Statuses that wait to be written.", registry=registry)
    pending.set_function(lambda: writer.pending if elector.certain else 0)  # a follower keeps them all and writes none
