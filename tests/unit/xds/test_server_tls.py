"""xDS over mutual TLS: only the certificate decides which configuration a client gets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from lasthop.base.api.meta import Key
from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import Authority
from lasthop.edge.xds.credentials import MutualTls
from lasthop.edge.xds.server import XdsServer
from lasthop.engine.outputs.envoy.resource import CLUSTER
from tests.xds_envoy import Heard, changes, cluster, until

NAME = "lasthop-xds.lasthop-system.svc"
WEB, API = Key("Gateway", "shop", "web"), Key("Gateway", "shop", "api")
UIDS = {"uid-of-web": WEB, "uid-of-api": API}


class World:
    def __init__(self) -> None:
        self.now = time.time()
        self.authority = ca.renewed(None, self.now)
        self.heard = Heard()
        self.server = XdsServer(self.heard)
        self.port = 0
        self.use(self.authority)
        self.server.update(WEB, changes(*cluster("of-web", 1)))
        self.server.update(API, changes(*cluster("of-api", 2)))

    def use(self, authority: Authority) -> None:
        self.credentials = MutualTls(ca.server_pair(authority, (NAME,), self.now), authority.bundle)

    def client(self, uid: str, authority: Authority | None = None) -> dict[str, bytes]:
        return ca.client_secret(authority or self.authority, uid, self.now)

    async def clusters(self, shown: dict[str, bytes] | None, trusted: bytes = b"", node: str = "shop/api") -> list[str]:
        """Returns the resources for a client with this certificate, or the status with which it is refused."""
        certificate = (shown["tls.key"], shown["tls.crt"]) if shown else (None, None)
        credentials = grpc.ssl_channel_credentials(trusted or self.credentials.trusted, *certificate)
        options = [("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{self.port}", credentials, options) as channel:
            ask = channel.stream_stream(
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
                request_serializer=discovery_pb2.DeltaDiscoveryRequest.SerializeToString,
                response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
            )
            stream = ask(timeout=5)
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER)
            request.node.id = node
            try:
                await stream.write(request)
                answer = await stream.read()
            except grpc.aio.AioRpcError as error:
                assert "shop" not in (error.details() or "").replace(node, "")
                return [error.code().name]
            if not isinstance(answer, discovery_pb2.DeltaDiscoveryResponse):
                return [(await stream.code()).name]
            stream.cancel()
            return [resource.name for resource in answer.resources]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        world = World()
        stack.push_async_callback(world.server.close)
        world.port = await world.server.start_tls("127.0.0.1:0", lambda: world.credentials, UIDS.get)
        world.server.open()
        yield world


async def test_the_certificate_decides_and_not_the_clients_node_id(world: World) -> None:
    assert await world.clusters(world.client("uid-of-web"), node="shop/api") == ["of-web"]
    assert await world.clusters(world.client("uid-of-api"), node="shop/web") == ["of-api"]


async def test_a_missing_gateway_gets_no_input(world: World) -> None:
    assert await world.clusters(world.client("uid-of-one-that-was-deleted")) == ["NOT_FOUND"]
    assert world.heard.events == []


async def test_rejected_callers_are_read_to_the_end_but_only_a_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(first: bytes | None) -> bool:
        received: list[bytes] = []

        async def messages() -> AsyncIterator[bytes]:
            received.append(b"x")
            yield b"x"

        await world.server._read_refused(first, messages())
        return bool(received)

    assert await read(None) and not await read(b"it has been read already")
    monkeypatch.setattr("lasthop.edge.xds.server.MAX_REFUSED_READS", 0)
    assert not await read(None)


async def test_without_a_certificate_there_is_no_connection(world: World) -> None:
    assert await world.clusters(None) == ["UNAVAILABLE"]


async def test_with_another_authoritys_certificate_there_is_no_connection(world: World) -> None:
    other = ca.renewed(None, world.now)
    assert await world.clusters(world.client("uid-of-web", other)) == ["UNAVAILABLE"]


async def test_the_controllers_own_certificate_does_not_make_a_client(world: World) -> None:
    own = world.credentials.own
    assert await world.clusters({"tls.crt": own.certificate, "tls.key": own.private_key}) == ["UNAVAILABLE"]


async def test_an_expired_certificate_is_refused(world: World) -> None:
    old = ca.client_secret(world.authority, "uid-of-web", world.now - ca.CLIENT_LIFE - 60)
    assert await world.clusters(old) == ["UNAVAILABLE"]


async def test_the_next_ca_is_taken_up_without_a_restart_and_the_last_one_trusted_meanwhile(world: World) -> None:
    old, new = world.authority, ca.renewed(None, world.now)
    both = Authority((*old.issuers, *new.issuers))
    world.use(both)  # trusts both, still shows a certificate of the old one
    assert await world.clusters(world.client("uid-of-web", old), old.bundle) == ["of-web"]
    assert await world.clusters(world.client("uid-of-web", new), both.bundle) == ["of-web"]
    world.use(new)
    assert await world.clusters(world.client("uid-of-web", new), both.bundle) == ["of-web"]
    assert await world.clusters(world.client("uid-of-web", old), both.bundle) == ["UNAVAILABLE"], "its time is over"


async def test_a_gateway_that_goes_takes_its_streams_along(world: World) -> None:
    assert await world.clusters(world.client("uid-of-web")) == ["of-web"]
    await until(lambda: world.heard.events[-1:] == ["disconnected shop/web"])
    world.server.remove(WEB)
    assert await world.clusters(world.client("uid-of-web")) == ["NOT_FOUND"]


async def test_a_stream_too_many_is_turned_away_before_anything_of_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lasthop.edge.xds.server.MAX_STREAMS", 1)
    shown = world.client("uid-of-web")
    credentials = grpc.ssl_channel_credentials(world.credentials.trusted, shown["tls.key"], shown["tls.crt"])
    options = [("grpc.ssl_target_name_override", NAME)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{world.port}", credentials, options) as channel:
        ask: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
        )
        silent = ask(timeout=30)
        await until(lambda: world.server._gateways[WEB].admitted == 1)
        assert await ask(timeout=30).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await world.clusters(world.client("uid-of-api")) == ["of-api"], "another Gateway's are not concerned"
        silent.cancel()
        await until(lambda: world.server._gateways[WEB].admitted == 0)
    assert await world.clusters(shown) == ["of-web"]
