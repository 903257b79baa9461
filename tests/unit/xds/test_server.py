"""The server without an Envoy: admitted clients, the order of messages, and the controller's callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from lasthop.edge.xds.server import SyncState, XdsServer
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from tests.unit.xds.playbook import clusters, withdrawn
from tests.xds_client import Proxy, proxy
from tests.xds_envoy import GATEWAY, NODE, Heard, short_directory, until


@pytest.fixture
def socket() -> Any:
    with short_directory() as directory:
        yield directory / "run" / "ads.sock"


@contextlib.asynccontextmanager
async def serving(socket: Path, heard: Heard, **options: Any) -> AsyncIterator[XdsServer]:
    server = XdsServer(heard, **options)
    await server.start(socket)
    try:
        yield server
    finally:
        await server.close()


async def test_updates_reach_the_proxy_and_its_confirmations_the_controller(socket: Path) -> None:
    heard = Heard()
    async with serving(socket, heard) as server, proxy(socket) as envoy:
        server.update(GATEWAY, clusters("a=1"))
        server.open()
        await envoy.ask(CLUSTER)
        first = await envoy.hear()
        assert [r.name for r in first.resources] == ["a"]
        assert server.state(GATEWAY) == SyncState(proxies=1, synced=False, decided=False)
        await envoy.ask(CLUSTER, nonce=first.nonce)
        await envoy.ask(LISTENER)
        none = await envoy.hear()
        assert (none.type_url, list(none.resources)) == (LISTENER, [])
        await envoy.ask(LISTENER, nonce=none.nonce)
        await until(lambda: server.state(GATEWAY).synced)
        assert [set(event.resources) for event in heard.acks] == [{"a"}, set()]

        server.update(GATEWAY, clusters("a=2"))
        second = await envoy.hear()
        await envoy.ask(CLUSTER, nonce=second.nonce, error="no")
        await until(lambda: heard.nacks)
        assert heard.nacks[0].detail == "no" and not server.state(GATEWAY).synced

        counts = server.traffic[CLUSTER]
        assert (counts.responses, counts.resources, counts.acks, counts.nacks) == (2, 2, 1, 1)
        assert counts.bytes == first.ByteSize() + second.ByteSize()
    assert heard.events == [f"connected {NODE}", f"disconnected {NODE}"]


async def test_before_it_is_open_no_client_gets_a_response(socket: Path) -> None:
    async with serving(socket, Heard()) as server, proxy(socket) as envoy:
        await envoy.ask(CLUSTER)
        server.update(GATEWAY, clusters("a=1"))
        read = asyncio.ensure_future(envoy.hear())
        await until(lambda: server.waiting)
        assert not read.done() and server.traffic[CLUSTER].responses == 0
        server.open()
        assert [r.name for r in (await read).resources] == ["a"]


async def test_a_node_of_no_gateway_is_refused_without_resources(socket: Path) -> None:
    heard = Heard()
    async with serving(socket, heard) as server, proxy(socket, "nobody") as envoy:
        server.update(GATEWAY, clusters("a=1"))
        server.open()
        await envoy.ask(CLUSTER)
        assert await envoy.ended() == grpc.StatusCode.NOT_FOUND
    assert heard.events == [] and server.traffic[CLUSTER].responses == 0


async def test_two_proxies_of_a_gateway_get_the_same(socket: Path) -> None:
    async with serving(socket, Heard()) as server, proxy(socket) as one, proxy(socket) as two:
        server.update(GATEWAY, clusters("a=1"))
        server.open()
        for envoy in (one, two):
            await envoy.ask(CLUSTER)
            assert (await envoy.hear()).resources[0].version == "1"
        assert server.state(GATEWAY).proxies == 2
        server.update(GATEWAY, withdrawn(CLUSTER, "a", urgent=True))
        for envoy in (one, two):
            assert (await envoy.hear()).removed_resources == ["a"]


async def test_proxies_are_synced_when_each_of_them_has_acknowledged_everything_and_not_before(socket: Path) -> None:
    async with serving(socket, Heard()) as server, proxy(socket) as one, proxy(socket) as two:
        server.update(GATEWAY, clusters("a=1"))
        server.open()

        async def confirm(envoy: Proxy, type_url: str) -> None:
            await envoy.ask(type_url, nonce=(await envoy.hear()).nonce)

        for envoy in (one, two):
            await envoy.ask(CLUSTER)
        await until(lambda: server.state(GATEWAY).proxies == 2)
        for envoy in (one, two):
            assert not server.synced(GATEWAY)
            await confirm(envoy, CLUSTER)
            await envoy.ask(LISTENER)
            await confirm(envoy, LISTENER)
        await until(lambda: server.synced(GATEWAY))
        for number, envoys in enumerate(((one, two), (two, one)), 2):
            server.update(GATEWAY, clusters(f"a={number}"))
            for envoy in envoys:
                assert not server.synced(GATEWAY)
                await confirm(envoy, CLUSTER)
            await until(lambda: server.synced(GATEWAY))
        async with proxy(socket) as three:
            await three.ask(CLUSTER)
            response = await three.hear()
            assert not server.synced(GATEWAY), "a third one has come"
            await three.ask(CLUSTER, nonce=response.nonce, error="no")
            await until(lambda: server.traffic[CLUSTER].nacks)
            assert not server.synced(GATEWAY), "and refuses"
        await until(lambda: server.synced(GATEWAY))
        await one.ask(ROUTES, subscribe=["table"])
        await until(lambda: not server.synced(GATEWAY))
        await confirm(one, ROUTES)
        await until(lambda: server.synced(GATEWAY))


async def test_a_gateway_that_is_removed_lets_go_of_its_proxies_without_emptying_them(socket: Path) -> None:
    heard = Heard()
    async with serving(socket, heard) as server, proxy(socket) as envoy:
        server.update(GATEWAY, clusters("a=1"))
        server.open()
        await envoy.ask(CLUSTER)
        await envoy.hear()
        server.remove(GATEWAY)
        assert await envoy.hear() == grpc.aio.EOF
        await until(lambda: len(heard.events) == 2)
        assert server.state(GATEWAY) == SyncState(0, synced=False, decided=False)
        assert server.traffic[CLUSTER].removals == 0


async def test_a_warming_cluster_holds_up_the_next_by_the_pace_and_no_longer(socket: Path) -> None:
    async with serving(socket, Heard()) as server, proxy(socket) as envoy:
        server.update(GATEWAY, clusters("a=1"))
        server.open()
        await envoy.ask(CLUSTER)
        await envoy.hear()
        start = time.monotonic()
        server.update(GATEWAY, clusters("b=1"))
        assert (await envoy.hear()).resources[0].name == "b"
        assert time.monotonic() - start > 0.05


async def test_an_expired_resource_is_taken_away_on_time(socket: Path) -> None:
    async with serving(socket, Heard()) as server, proxy(socket) as envoy:
        expires = time.time() + 0.3
        server.update(GATEWAY, clusters("waived=1", expires=expires))
        server.open()
        await envoy.ask(CLUSTER)
        assert 0 < (await envoy.hear()).resources[0].ttl.ToMilliseconds() <= 300
        assert (await envoy.hear()).removed_resources == ["waived"]
        assert time.time() >= expires


async def test_an_update_is_on_the_wire_in_milliseconds(socket: Path) -> None:
    """About 1 ms on a quiet machine, client included; the bound leaves room for a busy one."""
    async with serving(socket, Heard()) as server, proxy(socket) as envoy:
        server.update(GATEWAY, clusters("a=0"))
        server.open()
        await envoy.ask(CLUSTER)
        response = await envoy.hear()
        times = []
        for i in range(1, 40):
            await envoy.ask(CLUSTER, nonce=response.nonce)
            await asyncio.sleep(0.005)
            start = time.perf_counter()
            server.update(GATEWAY, clusters(f"a={i}"))
            response = await envoy.hear()
            times.append(time.perf_counter() - start)
        assert sorted(times)[len(times) // 2] < 0.02


async def test_the_socket_is_for_its_owner_only_and_gone_after_the_end(socket: Path) -> None:
    async with serving(socket, Heard()) as server:
        assert socket.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            await XdsServer(Heard()).start(socket)
        assert server.state(GATEWAY).proxies == 0
    assert not socket.exists()
    async with serving(socket, Heard()):
        assert socket.exists()


async def test_closing_what_never_started_is_harmless() -> None:
    await XdsServer(Heard()).close()
