"""A cluster's objects and statuses, served by Envoys of this host: no Deployments, no certificates, one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lasthop.api.meta import Key
from lasthop.api.status import Status
from lasthop.cluster import measures
from lasthop.controller import Controller
from lasthop.host import HostController
from lasthop.kubernetes.client import Client
from lasthop.plan.finding import Finding
from lasthop.proxy.entry import Entry
from lasthop.proxy.find import Envoy
from lasthop.resolve.settings import Settings
from lasthop.sinks.kubernetes.status_updater import Scribe
from lasthop.sources.kubernetes.source import KubernetesSource
from lasthop.web.measures import Measure


class ClusterHostController(HostController):
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
        entry: Callable[[Entry], None] = lambda entry: None,
    ) -> None:
        """`address` is what Gateways bind that ask for none; `namespace` is where the Lease is kept."""
        self._kubernetes = KubernetesSource(client, namespaces=namespaces)
        settings = Settings(default_address=address, external_names=False, pods=True)
        super().__init__(self._kubernetes, envoy, run_dir, settings=settings, entry=entry)
        self.scribe = Scribe(client, self._kubernetes.observed, identity=identity, namespace=namespace, uid_of=self.uid_of)

    def told(self, status: Mapping[Key, Status | None]) -> None:
        self.scribe.told(status)

    def found(self, new: list[Finding], gone: list[Finding]) -> None:
        self.scribe.found(new, gone)

    def measures(self) -> Iterator[Measure]:
        yield from super().measures()
        yield from measures(self.scribe, self._kubernetes)

    def unready(self) -> list[str]:
        """As of every controller of a cluster: its Gateways are of many owners."""
        return Controller.unready(self)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write())
            await super().run()
            writing.cancel()

    async def _write(self) -> None:
        await self.loaded.wait()
        await self.scribe.run()
