"""Expensive answers are shared and paced: for any number of clients, computing them takes at most a fifth of a core."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from lasthop.edge.slices import SHARE
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.request import Request
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web import answers as module
from lasthop.web.answers import QUESTIONS, Answers, Busy
from lasthop.web.app import ANSWERS, application
from lasthop.web.controller_view import ControllerView
from tests.fake_api import FakeApi, client_of, serving, until
from tests.world import keyed, mk_class, mk_gateway

QUESTION = (False, "/api/explain?kind=Gateway")


class World:
    """Answers with a simulated clock: making one takes a second, and nothing else takes any time."""

    def __init__(self) -> None:
        self.now = self.working = 0.0
        self.made = 0
        self.answers = Answers(lambda: self.now, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def make(self) -> bytes:
        self.made += 1
        made = self.made
        self.now += 1.0
        self.working += 1.0
        await asyncio.sleep(0)
        return str(made).encode()


async def test_equal_concurrent_requests_share_an_answer() -> None:
    world = World()
    bodies = await asyncio.gather(*(world.answers.get(QUESTION, world.make) for _ in range(50)))
    assert world.made <= 2 and set(bodies) <= {b"1", b"2"}
    assert not world.answers._asked, "and none is kept"


async def test_an_answer_is_computed_after_its_request() -> None:
    world = World()
    first = asyncio.ensure_future(world.answers.get(QUESTION, world.make))
    await until(lambda: world.made)
    assert await world.answers.get(QUESTION, world.make) == b"2", "what changed meanwhile may not be in the first"
    assert await first == b"1"


async def test_different_questions_are_answered_in_turn_with_rests_between() -> None:
    world = World()
    requests = [world.answers.get((False, f"/{number}"), world.make) for number in range(10)]
    await asyncio.gather(*requests)
    assert world.made == 10 and world.working / world.now <= 1.2 / SHARE
    before = world.now
    world.now += 100
    await world.answers.get(QUESTION, world.make)
    assert world.now - before == 101, "after a rest nobody waits"


async def test_what_fails_is_followed_by_a_rest_too_and_leaves_nothing_behind() -> None:
    world = World()

    async def broken() -> bytes:
        await world.make()
        raise web.HTTPNotFound

    for _ in range(5):
        with pytest.raises(web.HTTPNotFound):
            await world.answers.get(QUESTION, broken)
    assert world.working / world.now <= 1.4 / SHARE and not world.answers._asked


async def test_so_many_questions_wait_and_the_owner_waits_for_none_of_them() -> None:
    world, go = World(), asyncio.Event()

    async def slow() -> bytes:
        await go.wait()
        return b""

    requests = [asyncio.ensure_future(world.answers.get((False, f"/{number}"), slow)) for number in range(QUESTIONS)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await world.answers.get((False, "/one more"), world.make)
    requests.append(asyncio.ensure_future(world.answers.get((False, "/0"), slow)))
    await asyncio.sleep(0)
    assert not requests[-1].done(), "who asks what is asked already shares it"
    assert await world.answers.get((True, "/one more"), world.make) == b"1"
    go.set()
    await asyncio.gather(*requests)


ASKED = Request("GET", "http", "a.example", 80, "/")
EXPENSIVE = (
    *(
        "/api/proxies",
        "/api/objects",
        "/api/count",
        "/api/findings",
        "/api/explain?kind=Gateway&namespace=a&name=gw",
        "/api/audit",
    ),
    *("/api/changes", "/api/traffic", f"/api/explain-request?request={quote(msgspec.json.encode(ASKED))}", "/detail?hop=x"),
)
CHEAP = {
    *("/", "/live", "/detail/state", "/healthz", "/readyz", "/metrics"),
    *("/api/about", "/api/readiness", "/api/not-applied"),
}
"""Or shared in another way."""
OWNERS = {"/api/probe", "/api/tap", "/api/envoy-config", "/api/log-level"}


async def test_every_answer_over_some_cost_is_shared_and_paced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[tuple[bool, str]] = []
    real = Answers.get

    async def get(self: Answers, question: module.Question, make: Callable[[], Awaitable[bytes]]) -> bytes:
        questions.append(question)
        return await real(self, question, make)

    monkeypatch.setattr(Answers, "get", get)
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        runtime.controller.take(Batch(keyed(mk_class(), mk_gateway("a/gw"))))
        app = application(ControllerView(runtime))
        paths = {route.resource.canonical for route in app.router.routes() if route.resource and route.method == "GET"}
        assert paths - CHEAP - OWNERS - {"/static"} == {path.partition("?")[0] for path in EXPENSIVE}
        async with TestClient(TestServer(app)) as browser:
            for path in EXPENSIVE:
                async with browser.get(path) as response:
                    assert response.status in (200, 404), path
            async with browser.get(f"/api/explain-request?request={'[' * 5_000}") as response:
                assert response.status == 400
            assert len(questions) == len(EXPENSIVE) and not any(owner for owner, _ in questions)
            monkeypatch.setattr(module, "QUESTIONS", 0)
            async with browser.get("/api/objects") as response:
                assert response.status == 503 and response.headers["Retry-After"]
            socket = tmp_path / "s"
            runner = web.AppRunner(app)
            await runner.setup()
            await web.UnixSite(runner, str(socket)).start()
            by_socket = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))
            async with by_socket as session, session.get("http://localhost/api/objects") as response:
                assert response.status == 200, "the owner is answered"
            assert questions[-1] == (True, "/api/objects") and not app[ANSWERS]._asked
            await runner.cleanup()
