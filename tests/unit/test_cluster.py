"""Replicas of the controller on an API server: who serves, who writes, and what is known of whose proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from lasthop.api.meta import Key
from lasthop.cluster import ClusterRuntime
from lasthop.infra.kubernetes.desired import Site
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from tests.fake_api import KINDS, FakeApi, Refusal, client_of, serving, until
from tests.metrics import count
from tests.ports import free_port
from tests.proxy import documents as docs

NAME = "lasthop-xds.lasthop-system.svc"
MADE = (("", "v1", "serviceaccounts"), ("apps", "v1", "deployments"), ("policy", "v1", "poddisruptionbudgets"))
PLURALS = {kind: plural for plural, kind in KINDS.items()}


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as api:
        api.served |= set(MADE)
        for document in (docs.gateway_class(), docs.namespace("shop"), gateway()):
            api.put(PLURALS[document["kind"]], document)
        yield api


def gateway() -> dict[str, Any]:
    spec = {"gatewayClassName": docs.CLASS, "listeners": [docs.http(80)]}
    return docs.obj(docs.GATEWAY_API, "Gateway", "web", spec=spec)


class Replica:
    def __init__(self, runtime: ClusterRuntime, port: int) -> None:
        self.runtime, self.controller, self.port = runtime, runtime.controller, port


@contextlib.asynccontextmanager
async def replica(api: FakeApi, name: str) -> AsyncIterator[Replica]:
    port = free_port()
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        own = f"127.0.0.1:{port}"
        runtime = ClusterRuntime(
            client, Site("lasthop", NAME, 18000), identity=name, namespace="system", xds_listen=own, own_address=own
        )
        tasks.create_task(runtime.run())
        yield Replica(runtime, port)
        runtime.stop()


async def give_address(api: FakeApi) -> None:
    """As a cloud's load balancer would."""
    await until(lambda: ("shop", "lasthop-web") in api.objects.get("services", {}))
    service = api.get("services", "lasthop-web", "shop")
    api.put("services", {**service, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})


def condition(api: FakeApi, type: str = "Programmed") -> str:
    conditions = (api.get("gateways", "web", "shop").get("status") or {}).get("conditions") or ()
    return next((f"{c['status']} {c['reason']}" for c in conditions if c["type"] == type), "")


@contextlib.asynccontextmanager
async def proxy(api: FakeApi, port: int) -> AsyncIterator[None]:
    """Confirms everything that it is sent."""
    data = {key: base64.b64decode(value) for key, value in api.get("secrets", "lasthop-web-xds", "shop")["data"].items()}
    credentials = grpc.ssl_channel_credentials(data["ca.crt"], data["tls.key"], data["tls.crt"])
    options = [("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel, asyncio.TaskGroup() as tasks:
        stream = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
            request_serializer=discovery_pb2.DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
        )(wait_for_ready=True)

        async def answer() -> None:
            for request in _first():
                await stream.write(request)
            while True:
                response = await stream.read()
                if not isinstance(response, discovery_pb2.DeltaDiscoveryResponse):
                    return
                nonce = response.nonce
                await stream.write(discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=nonce))

        task = tasks.create_task(answer())
        yield
        task.cancel()
        stream.cancel()


def _first() -> Iterator[Any]:
    for type_url, names in ((CLUSTER, ()), (LISTENER, ()), (ROUTES, ("shop/web/80",))):
        yield discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)


async def test_a_proxy_of_a_follower_makes_its_gateway_programmed() -> None:
    async with world() as api, replica(api, "a") as leader:
        await until(lambda: not leader.runtime.unready())
        await give_address(api)
        await until(lambda: condition(api) == "False Pending")
        async with replica(api, "b") as follower:
            await until(lambda: not follower.runtime.unready())
            assert api.get("leases", "lasthop", "system")["spec"]["holderIdentity"] == "a"
            async with proxy(api, follower.port):
                await until(lambda: condition(api) == "True Programmed")
                assert not count(follower.runtime.updater.writer.counts, "writes")
                assert leader.controller.fleet.acks.replicas == ["b"]
                assert leader.controller.server.state(Key("Gateway", "shop", "web")).proxies == 0
                await until(lambda: "Programmed" in [event["reason"] for event in api.objects["events"].values()])


async def test_nothing_is_served_made_or_written_while_policies_cannot_be_read() -> None:
    async with world() as api:
        for verb in ("list", "watch"):
            api.fail(verb, "backendtlspolicies", "*", Refusal(403, "Forbidden"))
        async with replica(api, "a") as only:
            await until(lambda: api.watching("httproutes") and len(api.asked("watch", "backendtlspolicies")) > 2)
            assert only.runtime.unready() and not only.controller.loaded.is_set()
            assert not only.runtime.updater.elector.leading, "another replica may know more"
            assert not api.objects.get("deployments") and condition(api) == ""
            with contextlib.suppress(OSError):
                await asyncio.open_connection("127.0.0.1", only.port)
                raise AssertionError("it listens")
            api.faults.clear()
            await until(lambda: not only.runtime.unready())
            await until(lambda: condition(api, "Accepted") == "True Accepted")


async def test_a_new_leader_takes_over_without_a_flip_of_the_status() -> None:
    async with world() as api, contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(replica(api, "a"))
        await until(lambda: not first.runtime.unready())
        await give_address(api)
        async with replica(api, "b") as second, proxy(api, second.port):
            await until(lambda: condition(api) == "True Programmed")
            before = len(api.asked("update", "gateways"))
            first.runtime.stop()
            await until(lambda: second.runtime.updater.elector.leading)
            await until(lambda: not second.runtime.updater.writer.pending)
            assert condition(api) == "True Programmed"
            assert len(api.asked("update", "gateways")) == before, "there was nothing to write"
