"""Serves a cluster's objects with Envoys on this host: no Deployments, no certificates, one machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.edge.proxy.supervisor import Proxy
from lasthop.edge.sinks.kubernetes.status_updater import StatusUpdater
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.engine.engine import Engine
from lasthop.engine.resolve.settings import Settings
from lasthop.run.cluster import memory_of, register_metrics
from lasthop.run.host import HostRuntime


class ClusterHostRuntime:
    def __init__(
        self,
        client: Client,
        envoy: Envoy,
        run_dir: Path,
        *,
        identity: str,
        namespace: str,
        address: str,
        namespaces: tuple[str, ...] = (),
        entry: Callable[[AccessLogEntry], None] = lambda entry: None,
    ) -> None:
        """`address` is the default address of Gateways; `namespace` contains the Lease."""
        self._source = KubernetesSource(client, namespaces=namespaces)
        engine = Engine(Settings(default_address=address, external_names=False, pods=True), now=time.time())
        self.updater = StatusUpdater(
            client, self._source.observed, identity=identity, namespace=namespace, uid_of=engine.store.uid
        )
        self._host = HostRuntime(
            self._source, envoy, run_dir, engine=engine, sinks=(self.updater,), entry=entry, who=self._source.author
        )
        self.controller = self._host.controller
        register_metrics(self.controller.metrics, self.updater, self._source)
        self._memory = memory_of(client, namespace, self.controller, self.updater)

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        return self._host.proxies

    @property
    def requests(self) -> RequestFeed:
        return self._host.requests

    def unready(self) -> list[str]:
        """Returns why the controller is not ready. Its Gateways do not count, because they have many owners."""
        return self.controller.unready()

    async def run(self) -> None:
        self.controller.recall(await self._memory.load())
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write())
            await self._host.run()
            await self._memory.finish()
            writing.cancel()

    def stop(self) -> None:
        self._host.stop()

    async def _write(self) -> None:
        await self.controller.loaded.wait()
        async with asyncio.TaskGroup() as tasks:
            for work in (self.updater.run, self._memory.run):
                tasks.create_task(work())
