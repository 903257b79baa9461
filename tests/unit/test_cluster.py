"""Replicas of the controller on an API server: serving, writing, and reports about each other's proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes import contact
from lasthop.edge.xds import replicas
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from lasthop.run import cluster
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from tests.fake_api import KINDS, Access, FakeApi, Refusal, client_of, serving, until
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
async def replica(api: FakeApi, name: str, way: Access | None = None) -> AsyncIterator[Replica]:
    """`way`: how it reaches the API server, if not as all others do."""
    port = free_port()
    async with client_of(api, way) as client, asyncio.TaskGroup() as tasks:
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
async def proxy(api: FakeApi, port: int) -> AsyncIterator[asyncio.Task[None]]:
    """Confirms everything that it is sent, in a task that ends with the stream."""
    await until(lambda: ("shop", "lasthop-web-xds") in api.objects.get("secrets", {}))
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
        yield task
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


class Tunnel:
    """A way to the API server of a test that can be cut."""

    def __init__(self, api: FakeApi) -> None:
        self._target, self.port, self._open = api.url.removeprefix("http://").split(":"), 0, True
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Tunnel:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    @property
    def access(self) -> Access:
        return Access(f"http://127.0.0.1:{self.port}")

    def cut(self) -> None:
        self._open = False
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._open = True

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        there, away = await asyncio.open_connection(*self._target)
        self._writers |= {writer, away}
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(reader, away), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become tenths."""
    monkeypatch.setattr(cluster, "PROBE_INTERVAL", 0.05)
    monkeypatch.setattr(contact, "LOST_AFTER_SECONDS", 1.0)
    monkeypatch.setattr(contact, "FRESH", 0.5)
    monkeypatch.setattr(replicas, "REPEAT", 0.1)
    monkeypatch.setattr(replicas, "RETRY", 0.1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("leads", [False, True])
async def test_a_replica_that_alone_is_cut_off_gives_its_proxies_away_until_it_hears_the_api_server(leads: bool) -> None:
    async with world() as api, Tunnel(api) as tunnel:
        first, second = ("a", "b") if leads else ("b", "a")
        ways = {first: tunnel.access if leads else None, second: None if leads else tunnel.access}
        async with replica(api, first, ways[first]) as leader:
            await until(lambda: leader.runtime.updater.elector.leading)
            async with replica(api, second, ways[second]) as follower:
                lost, healthy = (leader, follower) if leads else (follower, leader)
                await until(lambda: not follower.runtime.unready())
                async with proxy(api, lost.port) as stream:
                    await until(lambda: lost.controller.server.state(Key("Gateway", "shop", "web")).proxies)
                    await until(lambda: leader.controller.fleet.acks.replicas)
                    tunnel.cut()
                    await until(lambda: lost.runtime.unready() == [cluster.CUT_OFF])
                    await until(stream.done)
                assert not healthy.runtime.unready()
                await until(lambda: not lost.controller.server.listening)
                tunnel.mend()
                await until(lambda: not lost.runtime.unready())
                async with proxy(api, lost.port):
                    await until(lambda: lost.controller.server.state(Key("Gateway", "shop", "web")).proxies)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_replicas_that_lose_the_api_server_together_keep_their_proxies(names: tuple[str, ...]) -> None:
    async with world() as api, Tunnel(api) as tunnel, contextlib.AsyncExitStack() as stack:
        started = [await stack.enter_async_context(replica(api, name, tunnel.access)) for name in names]
        for running in started:
            await until(lambda running=running: not running.runtime.unready())
        async with proxy(api, started[-1].port) as stream:
            await until(lambda: started[-1].controller.server.state(Key("Gateway", "shop", "web")).proxies)
            tunnel.cut()
            await until(lambda: all(running.runtime.age() > 2 * contact.LOST_AFTER_SECONDS for running in started))
            assert not any(running.runtime.unready() for running in started) and not stream.done()
