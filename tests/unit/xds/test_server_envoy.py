"""The server and a real Envoy over its own unix socket: Envoy's reaction to our messages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lasthop.edge.xds.quarantine import Quarantine
from lasthop.edge.xds.server import XdsServer
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Change, Part, Withdrawal
from tests.ports import free_port
from tests.xds_envoy import (
    GATEWAY,
    NODE,
    Heard,
    backend,
    becomes,
    changes,
    cluster,
    envoy,
    get,
    listener,
    route_table,
    short_directory,
    until,
    virtual_host,
)


class World:
    """A backend that says "one", a cluster `a` for it, and a listener with a table that sends everything to `a`."""

    def __init__(self, directory: Path, one: int) -> None:
        self.directory = directory
        self.ads = directory / "run" / "ads.sock"
        self.heard = Heard()
        self.server = XdsServer(self.heard)
        self.port = free_port()
        self.one = one
        self.cluster, self.endpoints = cluster("a", one)
        self.listener = listener("http", self.port, "http")
        self.table = route_table("http", virtual_host("*", {"/": "a"}))

    async def start(self) -> None:
        self.server.update(GATEWAY, changes(self.cluster, self.endpoints, self.listener, self.table))
        await self.server.start(self.ads)
        self.server.open()

    async def status(self) -> int:
        return (await get(self.port))[0]

    def synced(self) -> bool:
        return self.server.state(GATEWAY).synced


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        world = World(directory, await stack.enter_async_context(backend("one")))
        await world.start()
        stack.push_async_callback(lambda: world.server.close())
        await stack.enter_async_context(envoy(directory, world.ads))
        await until(world.synced)
        await becomes((200, "one"), lambda: get(world.port))
        yield world


async def test_traffic_passes_and_everything_is_confirmed(world: World) -> None:
    confirmed = {(event.type_url, name) for event in world.heard.acks for name in event.resources}
    assert confirmed == {(CLUSTER, "a"), (ENDPOINTS, world.endpoints.name), (LISTENER, "http"), (ROUTES, "http")}
    assert world.heard.events == [f"connected {NODE}"] and not world.heard.nacks
    assert world.server.state(GATEWAY).proxies == 1


async def test_a_cluster_edit_is_effective_in_milliseconds_and_touches_nothing_else(world: World) -> None:
    sent = {url: world.server.traffic[url].responses for url in (LISTENER, ROUTES)}
    async with backend("two") as two:
        edited, endpoints = cluster("a", two, timeout=6)
        new: dict[str, Change] = {world.endpoints.name: Withdrawal(urgent=False), endpoints.name: endpoints}
        world.server.update(GATEWAY, {CLUSTER: {"a": edited}, ENDPOINTS: new})
        # 9 ms on a quiet machine (docs/measurements.md#stable-names); a cluster that waits for its endpoints takes 1 s.
        assert await becomes((200, "two"), lambda: get(world.port)) < 0.5
        await until(world.synced)
    assert {url: world.server.traffic[url].responses for url in (LISTENER, ROUTES)} == sent


async def test_edits_on_each_others_heels_end_in_the_last_one_and_never_fail(world: World) -> None:
    name = world.endpoints.name
    async with backend("two") as two:
        for timeout in range(6, 16):
            edited, endpoints = cluster("a", two, timeout=timeout)
            world.server.update(
                GATEWAY, {CLUSTER: {"a": edited}, ENDPOINTS: {name: Withdrawal(urgent=False), endpoints.name: endpoints}}
            )
            name = endpoints.name
            assert (await get(world.port))[0] == 200
        await becomes((200, "two"), lambda: get(world.port))
        start = time.monotonic()
        while time.monotonic() - start < 0.3:
            assert await get(world.port) == (200, "two")
        await until(world.synced)


async def test_an_urgent_withdrawal_answers_500_at_once(world: World) -> None:
    world.server.update(GATEWAY, {CLUSTER: {"a": Withdrawal(urgent=True)}})
    assert await becomes(500, world.status) < 0.5
    world.server.update(GATEWAY, changes(world.cluster))
    assert await becomes(200, world.status) < 0.5


async def test_a_new_cluster_and_its_route_come_without_a_single_error(world: World) -> None:
    async with backend("two") as two:
        new, endpoints = cluster("b", two)
        world.server.update(
            GATEWAY,
            {
                **changes(endpoints, route_table("http", virtual_host("*", {"/": "b"}))),
                CLUSTER: {"b": new, "a": Withdrawal(urgent=False)},
            },
        )
        seen = set()
        start = time.monotonic()
        while time.monotonic() - start < 0.5:
            seen.add(await get(world.port))
        assert seen == {(200, "one"), (200, "two")}
        await until(world.synced)


async def test_after_a_restart_of_the_server_nothing_is_sent_again(world: World) -> None:
    await world.server.close()
    assert await get(world.port) == (200, "one")
    assert world.heard.events[-1] == f"disconnected {NODE}"
    again = Heard()
    world.server = XdsServer(again)
    world.server.update(GATEWAY, changes(world.cluster, world.endpoints, world.listener, world.table))
    await world.server.start(world.ads)
    await until(lambda: world.server.waiting)  # it has come back: before `open` nothing is known, so nothing is sent
    assert await get(world.port) == (200, "one")
    world.server.open()
    await until(world.synced)
    assert {url: t.responses for url, t in world.server.traffic.items()} == dict.fromkeys(world.server.traffic, 0)
    assert {name for event in again.acks for name in event.resources} == {"a", "http", world.endpoints.name}
    assert await get(world.port) == (200, "one")


async def test_after_a_restart_what_changed_meanwhile_is_sent_and_what_is_gone_is_removed(world: World) -> None:
    await world.server.close()
    world.server = XdsServer(Heard())
    world.server.update(GATEWAY, changes(world.listener, world.table))
    await world.server.start(world.ads)
    world.server.open()
    await becomes(500, world.status)
    await until(world.synced)
    assert world.server.traffic[CLUSTER].removals == 1 and world.server.traffic[ROUTES].responses == 0


async def test_a_bad_regex_is_refused_and_the_old_table_goes_on(world: World) -> None:
    world.server.update(GATEWAY, changes(route_table("http", virtual_host("*", {"~(unclosed": "a", "/": "a"}))))
    await until(lambda: world.heard.nacks)
    [event] = world.heard.nacks
    assert event.type_url == ROUTES and set(event.resources) == {"http"} and "missing )" in event.detail
    assert await world.status() == 200
    assert not world.synced()
    world.server.update(GATEWAY, changes(world.table))
    await until(world.synced)


async def test_one_bad_cluster_is_named_quarantined_and_removed_and_its_companions_are_confirmed(world: World) -> None:
    quarantine = Quarantine()
    for acked in world.heard.acks:
        quarantine.acked(acked.type_url, acked.resources)
    bad, bad_endpoints = cluster("a", world.one, bad=True)
    waived, waived_endpoints = cluster("waived", world.one, expires=time.time() + 3)
    world.server.update(
        GATEWAY,
        changes(
            bad, bad_endpoints, waived, waived_endpoints, route_table("http", virtual_host("*", {"/w": "waived", "/": "a"}))
        ),
    )
    await until(lambda: world.heard.nacks)
    [event] = world.heard.nacks
    assert set(event.resources) == {"a", "waived"}
    assert quarantine.nacked(event.type_url, event.resources, event.detail)
    assert quarantine.quarantined == {Part(CLUSTER, "a", bad.version)}
    assert "no.such.socket" in quarantine.detail(Part(CLUSTER, "a", bad.version))

    world.server.update(GATEWAY, {CLUSTER: {"a": Withdrawal(urgent=True)}})
    await becomes(500, world.status)
    await until(world.synced)
    await becomes((200, "one"), lambda: get(world.port, "/w"))
    # Had it not been sent again after the refusal, Envoy would have no timer for it: the server is dead by now.
    await world.server.close()
    assert await becomes((500, ""), lambda: get(world.port, "/w")) < 4


async def test_a_port_that_is_taken_is_no_fault_of_the_listener(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        world.server.update(GATEWAY, changes(listener("second", taken.getsockname()[1], "http")))
        await until(lambda: world.heard.nacks)
    [event] = world.heard.nacks
    quarantine = Quarantine()
    assert not quarantine.nacked(event.type_url, event.resources, event.detail)
    assert set(quarantine.environment) == {(LISTENER, "second")}


async def test_a_bad_listener_is_named(world: World) -> None:
    good = listener("good", free_port(), "http")
    bad = listener("bad", world.port, "http")  # the same address as another listener's
    world.server.update(GATEWAY, changes(good, bad))
    await until(lambda: world.heard.nacks)
    [event] = world.heard.nacks
    quarantine = Quarantine()
    quarantine.nacked(event.type_url, event.resources, event.detail)
    assert quarantine.quarantined == {Part(LISTENER, "bad", bad.version)}, event.detail


async def test_endpoints_that_do_not_exist_do_not_hold_up_the_confirmation(world: World) -> None:
    """Envoy would wait for them much longer than this test does."""
    orphan, _ = cluster("orphan", world.one, fetch_timeout=1000)
    world.server.update(GATEWAY, changes(orphan))
    await until(world.synced)


async def test_two_bad_virtual_hosts_among_several_are_found_and_the_others_served(world: World) -> None:
    """Repeats the engine's part: build without quarantined parts, apply, listen."""
    quarantine = Quarantine()
    hosts = {f"h{i}": virtual_host(f"h{i}", {"/": "a"}) for i in range(6)}

    def build() -> None:
        while True:
            without = quarantine.quarantined
            parts = route_table("http", *hosts.values()).parts
            out = tuple(name for name, hash in parts.items() if Part(ROUTES, name, hash) in without)
            built = [virtual_host(name, {"/": ""}) if name in out else hosts[name] for name in hosts]
            world.server.update(GATEWAY, changes(route_table("http", *built, instead=out)))
            if not quarantine.served(world.server.add(GATEWAY), without):
                return

    async def at_rest() -> None:
        rounds = 0
        while not world.synced() or world.heard.acks or world.heard.nacks:
            again = [quarantine.acked(e.type_url, e.resources) for e in world.heard.acks]
            again += [quarantine.nacked(e.type_url, e.resources, e.detail) for e in world.heard.nacks]
            world.heard.acks.clear()
            world.heard.nacks.clear()
            if any(again):
                rounds += 1
                build()
            await asyncio.sleep(0.002)
        assert rounds < 20

    build()
    await at_rest()
    for name in ("h1", "h2", "h4", "h5"):
        bad = name in ("h2", "h4")
        hosts[name] = virtual_host(name, {"~(unclosed" if bad else "~/edited": "a", "/": "a"})
    build()
    await at_rest()
    assert {part.id for part in quarantine.quarantined} == {part.id for part in quarantine.culprits} == {"h2", "h4"}
    statuses = {name: (await get(world.port, host=name))[0] for name in hosts}
    assert statuses == {"h0": 200, "h1": 200, "h2": 500, "h3": 200, "h4": 500, "h5": 200}
    assert {quarantine.detail(part) for part in quarantine.culprits} == {"missing ): (unclosed"}

    hosts["h2"] = virtual_host("h2", {"/": "a"})
    build()
    await at_rest()
    assert (await get(world.port, host="h2"))[0] == 200 and (await get(world.port, host="h4"))[0] == 500


async def test_a_proxy_whose_gateway_is_removed_goes_on_until_someone_ends_it(world: World) -> None:
    world.server.remove(GATEWAY)
    await until(lambda: world.heard.events[-1] == f"disconnected {NODE}")
    assert await get(world.port) == (200, "one")
