"""A controller on the API server of a test, and everything that it has sent to proxies and reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from lasthop.base.api.meta import Key
from lasthop.base.api.status import ParentStatus, RouteStatus, Status
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, Resource
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.settings import IN_CLUSTER
from lasthop.run import loop
from lasthop.run.controller import Controller
from tests.api_objects import mk_policy, mk_route
from tests.fake_api import FakeApi, client_of, until
from tests.proxy import documents as docs
from tests.unit.sources.kubernetes.reflecting import FAST

GATEWAY = Key("Gateway", "shop", "gw")
POLICIES = "backendtlspolicies"


def base(api: FakeApi) -> None:
    """Puts a class, a namespace and a Gateway."""
    spec = {"gatewayClassName": docs.CLASS, "listeners": [docs.http(80)]}
    api.put("gatewayclasses", docs.gateway_class())
    api.put("namespaces", docs.namespace("shop"))
    api.put("gateways", docs.obj(docs.GATEWAY_API, "Gateway", "shop/gw", spec=spec))


def put_service(api: FakeApi, name: str, namespace: str = "shop") -> None:
    metadata = {"name": name, "namespace": namespace}
    api.put("services", {"metadata": metadata, "spec": {"ports": [{"name": "web", "port": 80}]}})


def put_route(api: FakeApi, name: str, namespace: str = "shop") -> None:
    """Puts a route to the Service of that name."""
    parent = {"name": "gw", "namespace": "shop"}
    rules = [{"backendRefs": [{"name": name, "port": 80}]}]
    api.put("httproutes", mk_route(name, namespace, parentRefs=[parent], hostnames=[f"{name}.example"], rules=rules))


def put_policy(api: FakeApi, name: str, namespace: str = "shop", **spec: Any) -> None:
    """Puts a policy for the Service of that name."""
    api.put(POLICIES, mk_policy(name, name, namespace, **spec))


def put_hop(api: FakeApi, name: str, namespace: str = "shop") -> None:
    put_service(api, name, namespace)
    put_route(api, name, namespace)


class Site(Sink):
    def __init__(self, source: KubernetesSource) -> None:
        self.source, self.engine = source, Engine(IN_CLUSTER)
        self.controller = Controller(source, self.engine, lambda: SystemStore("/ca.pem", "hash"), (self,))
        self.reasons: dict[str, list[str]] = {}
        """By route: the reasons of ResolvedRefs that were reported, one after the other."""
        self.history: dict[str, list[str]] = {}
        """By Service: the modes that the engine has decided on, one after the other."""

    def hops_changed(self, hops: Sequence[Hop]) -> None:
        for hop in hops:
            mode = next((str(report.manner) for report in self.engine.hops() if report.backend == hop.backend), "none")
            seen = self.history.setdefault(hop.backend.name, [])
            if not seen or seen[-1] != mode:
                seen.append(mode)

    def status_changed(self, changes: Mapping[Key, Status | None]) -> None:
        for key, status in changes.items():
            if isinstance(status, RouteStatus):
                self.reasons.setdefault(key.name, []).extend(map(_reason, status.parents))

    def mode(self, name: str, namespace: str = "shop") -> str:
        """Returns what proxies are to have for a Service: plaintext, tls, closed or none."""
        known = self.controller.fleet.gateways.get(GATEWAY)
        resource = (
            known.cache.get(CLUSTER, Hop(GATEWAY, Key("Service", namespace, name), 80, Protocol.AUTO).name) if known else None
        )
        if not isinstance(resource, Resource):
            return "closed" if resource is not None else "none"
        return "tls" if Cluster.FromString(resource.body).HasField("transport_socket") else "plaintext"

    def message(self, name: str) -> str:
        """Returns the reports about a route."""
        return " ".join(
            finding.message for finding in self.engine.findings() if finding.object and finding.object.name == name
        )

    async def becomes(self, name: str, mode: str, namespace: str = "shop") -> None:
        try:
            await until(lambda: self.mode(name, namespace) == mode, within=10.0)
        except AssertionError:
            raise AssertionError(f"{name} is {self.mode(name, namespace)}, not {mode}: {self.message(name)}") from None


def _reason(parent: ParentStatus) -> str:
    return next((condition.reason for condition in parent.conditions if condition.type == "ResolvedRefs"), "")


@asynccontextmanager
async def controlling(api: FakeApi, **options: Any) -> AsyncIterator[Site]:
    async with client_of(api) as client:
        site = Site(KubernetesSource(client, **{"timing": FAST, "discovery_interval": 0.05, "settle": 0.002, **options}))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(loop.run(site.controller))
            yield site
            task.cancel()
