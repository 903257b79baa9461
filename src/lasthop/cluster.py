"""The controller of a cluster: objects from the API server, proxies as Deployments, statuses written back by the leader.

KubernetesSource ──> Controller ──> xDS over mTLS ──> proxies
                         └──status──> StatusWriter   (only while the Lease is ours, as are Deployments and the CA)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from lasthop.api import gateway as api
from lasthop.api.meta import Key
from lasthop.api.profiles import ProxySettings
from lasthop.api.status import Status
from lasthop.controller import Controller
from lasthop.infra.kubernetes.deployments import Deployments
from lasthop.infra.kubernetes.identity import Identity
from lasthop.infra.kubernetes.wanted import Site, wanted
from lasthop.infra.system_store import host_store
from lasthop.plan.infrastructure import Infrastructure
from lasthop.plan.listener import Gateway
from lasthop.resolve.settings import IN_CLUSTER
from lasthop.sources.kubernetes.client import Client
from lasthop.sources.kubernetes.lease import LeaderElector
from lasthop.sources.kubernetes.source import KubernetesSource
from lasthop.sources.kubernetes.writer import StatusWriter

LEASE: Final = "lasthop"
"""RBAC names it."""


class ClusterController(Controller):
    def __init__(
        self,
        client: Client,
        site: Site,
        *,
        identity: str,
        namespace: str,
        xds_listen: str,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        """`identity` is this replica, `namespace` where it keeps its Lease and its CA."""
        source = KubernetesSource(client, namespaces=namespaces)
        super().__init__(source, IN_CLUSTER, host_store)
        self._elector = LeaderElector(client, namespace, LEASE, identity, on_started=self._lead, on_stopped=self._follow)
        self._writer = StatusWriter(client, source.observed, may_write=lambda: self._elector.certain)
        self._identity = Identity(
            client,
            namespace,
            tuple(dict.fromkeys((site.xds_server_name or site.xds_host, site.xds_host))),
            may_write=lambda: self._elector.certain,
            problem=lambda text: self.log.error(text) if text else None,
        )
        self._deployments = Deployments(
            client,
            site,
            authority=lambda: self._identity.authority,
            changed=self._infrastructure_changed,
            namespaces=namespaces,
        )
        self._xds_listen = xds_listen
        self._leading, self._lost = asyncio.Event(), asyncio.Event()
        self._uids: dict[str, str] = {}
        self._stopping = asyncio.Event()

    def want(self, gateways: Mapping[Key, Gateway]) -> None:
        found = {}
        for key, plan in gateways.items():
            obj = self.engine.store.get(key)
            if isinstance(obj, api.Gateway):
                found[key] = wanted(obj, plan, ProxySettings())
        self._uids = {gateway.uid: key.path for key, gateway in found.items()}
        self._deployments.want(found)

    def told(self, status: Mapping[Key, Status | None]) -> None:
        self._writer.want(status)

    @property
    def ready(self) -> bool:
        """Every kind has been read once, so proxies can be served. Theirs is another readiness."""
        return self.loaded.is_set() and self._identity.known.is_set()

    async def run(self) -> None:
        """Lives until `stop`; proxies live on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                work = (
                    self._read,
                    self._settle_when_dirty,
                    self._watch_time_and_store,
                    self._elector.run,
                    self._writer.run,
                    self._identity.run,
                    self._deploy,
                )
                running = [tasks.create_task(one()) for one in work]
                await self.loaded.wait()
                await self._identity.known.wait()
                await self.server.start_tls(self._xds_listen, self._identity.credentials, lambda uid: self._uids.get(uid))
                # Only now does anything go out: before every kind has been read once, "no policy" is not known.
                self.server.open()
                self.log.info("serving proxies", address=self._xds_listen)
                await self._stopping.wait()
                for task in running:
                    task.cancel()
        finally:
            await self.server.close()

    def stop(self) -> None:
        self._stopping.set()

    def _lead(self) -> None:
        self.log.info("leading: statuses and proxies are this replica's to write")
        self._writer.lead(True)
        self._lost.clear()
        self._leading.set()

    def _follow(self) -> None:
        self._writer.lead(False)
        self._leading.clear()
        self._lost.set()

    async def _deploy(self) -> None:
        """Deployments are the leader's; whoever loses the lead stops in the middle of whatever it does."""
        while True:
            await self._leading.wait()
            await self._identity.refresh()
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self._deployments.run())
                await self._lost.wait()
                running.cancel()

    def _infrastructure_changed(self, key: Key, state: Infrastructure) -> None:
        self.engine.set_infrastructure(key, state)
        self._dirty.set()
