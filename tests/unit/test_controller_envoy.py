"""The controller and a real Envoy that rejects configuration: the affected objects, and the findings.

Lasthop's own checks reject such configuration first, so these tests disable one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.status import GatewayStatus, RouteStatus
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy import encoded_routes, route_messages
from lasthop.engine.outputs.envoy.resource import ROUTES, SECRET
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.trust import certificates
from lasthop.run import loop
from lasthop.run.controller import Controller
from tests.ports import free_port
from tests.world import key_pair, keyed, mk_class, mk_gateway, mk_route, mk_secret, mk_service, mk_slice
from tests.xds_envoy import GATEWAY, NODE, backend, becomes, envoy, get, short_directory, until

EVIL = Key("HTTPRoute", "shop", "evil")
GARBAGE = "garbage"


class NoSource(ObjectSource):
    async def batches(self) -> AsyncIterator[Batch]:
        await asyncio.Event().wait()
        yield Batch({})


class FreePorts(Sink):
    """Envoy is started by the test."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        for key, plan in gateways.items():
            for listener in plan.listeners:
                BIND_RESULT.set(self._engine.graph, BindResult(), key, "127.0.0.1", listener.port, "TCP")


class World:
    def __init__(self, port: int) -> None:
        self.http, self.good, self.bad = free_port(), free_port(), free_port()
        engine = Engine(now=time.time())
        self.controller = Controller(NoSource(), engine, lambda: None, (FreePorts(engine),))
        listeners = [
            {"name": "http", "port": self.http, "protocol": "HTTP"},
            *(
                {"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": name}]}}
                for name, port in (("good", self.good), ("bad", self.bad))
            ),
        ]
        self.controller.take(
            Batch(
                keyed(
                    mk_class(),
                    mk_gateway(NODE, listeners, addresses=[{"value": "127.0.0.1"}]),
                    mk_secret("shop/good", *key_pair("good")),
                    mk_service("shop/s", [{"name": "http", "port": 80}]),
                    mk_slice("shop/s-1", "s", ["127.0.0.1"], port, "http"),
                    self.route("victim", "/"),
                )
            )
        )

    def route(self, name: str, *paths: str) -> Any:
        rule = {"matches": [{"path": {"value": path}} for path in paths], "backendRefs": [{"name": "s", "port": 80}]}
        parents = [{"name": GATEWAY.name, "namespace": GATEWAY.namespace, "sectionName": "http"}]
        return mk_route(f"shop/{name}", NODE, [], ["shop"], rules=[rule], parents=parents)

    def put(self, *objects: Any) -> None:
        self.controller.take(Batch(keyed(*objects)))

    def accepted(self, key: Key) -> tuple[str, str]:
        status = self.controller.statuses.get(key)
        if not isinstance(status, RouteStatus):
            return "", ""
        (condition,) = [c for c in status.parents[0].conditions if c.type == "Accepted"]
        return condition.status, condition.reason

    def resolved(self, listener: str) -> tuple[str, str]:
        status = self.controller.statuses.get(GATEWAY)
        assert isinstance(status, GatewayStatus)
        (own,) = [listener_status for listener_status in status.listeners if listener_status.name == listener]
        (condition,) = [c for c in own.conditions if c.type == "ResolvedRefs"]
        return condition.status, condition.reason

    async def tls(self, port: int) -> bool:
        """Whether a handshake is made."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            return False
        writer.close()
        return True


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[World]:
    with short_directory() as directory:
        async with backend("one") as port, running(World(port), directory) as world:
            yield world


@contextlib.asynccontextmanager
async def running(world: World, directory: Path) -> AsyncIterator[World]:
    ads = directory / "run" / "ads.sock"
    server = world.controller.server
    await server.start(ads)
    server.open()
    async with asyncio.TaskGroup() as tasks:
        settling = tasks.create_task(loop.run(world.controller))
        async with envoy(directory, ads):
            await until(world.controller.loaded.is_set)
            await becomes((200, "one"), lambda: get(world.http))
            yield world
        await server.close()
        settling.cancel()


def spoilt(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """Every message of the guilty route gets something that Envoy does not take."""
    real = route_messages.envoy_routes

    def messages(route: Any, listening: Any) -> Any:
        configured = real(route, listening)
        if route.origin == str(EVIL):
            for message in (*configured.upgrade, *configured.other):
                spoil(message)
        return configured

    monkeypatch.setattr(encoded_routes, "envoy_routes", messages)


async def test_only_a_refused_route_answers_500_and_its_status_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, lambda message: message.request_headers_to_remove.append("no\nheader"))
    async with serving() as world:
        world.put(world.route("evil", "/evil", "/worse"), world.route("other", "/other"))
        await until(lambda: world.accepted(EVIL) == ("False", "RefusedByProxy"))
        await until(lambda: world.controller.server.state(GATEWAY).synced)
        assert await get(world.http, "/evil") == await get(world.http, "/worse") == (500, "")
        assert await get(world.http, "/") == await get(world.http, "/other") == (200, "one")
        assert world.accepted(Key("HTTPRoute", "shop", "other")) == ("True", "Accepted")
        (finding,) = [f for f in world.controller.findings() if f.reason == "RefusedByProxy"]
        assert finding.object == EVIL and "does not match regex pattern" in finding.message
        assert "victim" not in finding.message  # Envoy quotes the whole table, which is nothing for this author


async def test_where_envoy_refuses_even_the_match_the_route_is_left_out_and_the_host_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unclosed(match: Any) -> Any:
        message = real(match)
        if match.path == "/evil":
            message.safe_regex.regex = "(unclosed"
        return message

    real = route_messages.route_match
    monkeypatch.setattr(route_messages, "route_match", unclosed)
    async with serving() as world:
        world.put(world.route("evil", "/evil"))
        await until(lambda: world.accepted(EVIL) == ("False", "RefusedByProxy"))
        await until(lambda: world.controller.server.state(GATEWAY).synced)
        assert world.controller.server.traffic[ROUTES].nacks == 2  # the route, then its 500
        assert await get(world.http, "/") == (200, "one")


async def test_a_refused_secret_closes_its_own_listener_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = certificates._check_pair
    pair = tuple(text.encode() for text in key_pair("good"))
    monkeypatch.setattr(certificates, "_check_pair", lambda *given: real(*(pair if GARBAGE.encode() in given else given)))
    async with serving() as world:
        await until(lambda: world.controller.server.traffic[SECRET].acks == 1)
        world.put(mk_secret("shop/bad", GARBAGE, GARBAGE))
        await until(lambda: world.controller.server.traffic[SECRET].nacks == 1)
        await until(lambda: world.resolved("bad") == ("False", "InvalidCertificateRef"))
        await until(lambda: world.controller.server.state(GATEWAY).synced)
        assert not world.controller.unready() and world.controller.server.traffic[SECRET].nacks == 1
        assert await world.tls(world.good) and not await world.tls(world.bad)
        assert world.resolved("good") == ("True", "ResolvedRefs")
        world.put(mk_secret("shop/bad", *key_pair("other")))
        await until(lambda: world.resolved("bad") == ("True", "ResolvedRefs"))
        await becomes(True, lambda: world.tls(world.bad))
