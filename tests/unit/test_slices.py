"""Large reports never block the event loop for long, and a crashed member hides none of the others."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge import slices
from lasthop.edge.slices import SLICE, Shared, in_slices
from lasthop.edge.sources.source import Batch
from lasthop.engine.outputs.audit import certificates, hops
from lasthop.engine.plan.messages import CRASHED
from lasthop.engine.plan.observation import EndpointSeen, HopSeen, ProxyReport
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.store.graph import Graph, query
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.controller_view import ControllerView
from lasthop.web.metrics import metrics
from lasthop.web.page import live, page
from lasthop.web.page_model import PageModel
from lasthop.web.picture import Filter, Line, LineState
from tests.fake_api import FakeApi, client_of, serving
from tests.observed import of_now
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service


async def test_long_work_lets_others_run_every_few_milliseconds() -> None:
    clock, ran, seen = 0.0, 0, []

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    def work() -> Iterator[int]:
        nonlocal clock
        for number in range(100):
            clock += SLICE
            seen.append(ran)
            yield number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: clock)
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(other())
            assert await in_slices(work()) == list(range(100))
            beside.cancel()
    assert seen[-1] >= 49, "between any three of them somebody else ran"


async def test_concurrent_requests_share_an_answer_until_it_may_have_changed() -> None:
    made, version = 0, 1

    async def make() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return made

    shared = Shared(make, lambda: version)
    assert await asyncio.gather(*(shared.get() for _ in range(20))) == [1] * 20
    assert await shared.get() == 1, "nothing has changed"
    version = 2
    assert await asyncio.gather(*(shared.get() for _ in range(20))) == [2] * 20
    version = None  # type: ignore[assignment]
    assert await shared.get() == 3, "not known whether it has"


async def test_a_caller_that_cannot_wait_gets_the_last_answer_unless_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    made, go = 0, asyncio.Event()

    async def make() -> int:
        nonlocal made
        made += 1
        if made > 1:
            await go.wait()
        return made

    shared = Shared(make)
    assert await shared.at_once() == 1, "the first who asks waits"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(shared.get())
        await asyncio.sleep(0)
        assert await shared.at_once() == 1, "while the next one is being made"
        go.set()
        assert await waiting == 2
    assert await shared.at_once() == 2
    monkeypatch.setattr(slices, "RECENT", -1.0)
    assert await shared.at_once() == 3, "nobody has asked for so long that it says nothing of now"


async def test_one_member_that_crashes_hides_neither_the_others_nor_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = hops._report

    def judged(g: Graph, hop: Hop) -> hops.HopReport:
        if hop.backend.name == "odd":
            raise ValueError("odd")
        return sound(g, hop)

    @query
    def of_policy(g: Graph, policy: Key) -> tuple[certificates.Used, ...]:
        raise ValueError("odd")

    monkeypatch.setattr(hops, "_report", judged)
    monkeypatch.setattr(certificates, "_of_policy", of_policy)
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        objects = [mk_class(), mk_gateway("a/gw"), mk_config_map("a/ca", ca_pem("good"))]
        for name in ("odd", "even"):
            objects += [mk_service(f"a/{name}"), mk_policy(f"a/{name}", name, "api.example", ["ca"])]
            objects.append(mk_route(f"a/{name}", "a/gw", [{"name": name, "port": 443}], [f"{name}.example"]))
        runtime.controller.take(Batch(keyed(*objects)))
        view = ControllerView(runtime)
        text = (await metrics(view)).decode()
        manners = {hop.backend.path: hop.manner for hop in (await view.audit()).hops}
        shown = await page(PageModel(view), Filter())
    assert manners == {"a/odd": "failing closed", "a/even": "verified"}
    (even,) = (line for line in text.splitlines() if line.startswith("lasthop_backend_tls_verification{") and "even" in line)
    assert 'mode="Verified"' in even
    assert CRASHED in shown and "api.example" in shown


async def test_an_object_that_nothing_reads_yet_is_shown_at_once() -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        runtime.controller.take(Batch(keyed(mk_class(), mk_gateway("a/gw"))))
        runtime.controller.engine.settle()
        view = ControllerView(runtime)
        assert await view.objects("BackendTLSPolicy") == []
        runtime.controller.engine.apply(keyed(mk_policy("a/p", "nowhere", "api.example", ["ca"])))
        runtime.controller.engine.settle()
        assert [document["metadata"]["name"] for document in await view.objects("BackendTLSPolicy")] == ["p"]


HOPS = 1500
HELD = 0.05
"""Seconds of its thread's time that the event loop may be held at most."""


async def test_no_question_holds_the_event_loop_however_many_hops_there_are() -> None:
    """Measured by the time of the thread, because other processes may have the cores, and without the garbage collector, whose
    time depends on all objects."""
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        objects = [mk_class(), mk_gateway("a/gw"), mk_config_map("a/ca", ca_pem("good"))]
        for number in range(HOPS):
            name = f"s{number}"
            objects += [mk_service(f"a/{name}"), mk_policy(f"a/{name}", name, "api.example", ["ca" if number % 2 else "none"])]
            objects.append(mk_route(f"a/{name}", "a/gw", [{"name": name, "port": 443}], [f"{name}.example"]))
        runtime.controller.take(Batch(keyed(*objects)))
        gateway, now = Key("Gateway", "a", "gw"), time.time()
        endpoints = (EndpointSeen("10.0.0.1:1", last_success=now), EndpointSeen("10.0.0.2:1", 9, "why", True, 9, now, now))
        graph = runtime.controller.engine.graph
        hops = (Hop(gateway, Key("Service", "a", f"s{number}"), 443, Protocol.AUTO) for number in range(HOPS))
        seen = {hop: of_now(graph, hop, HopSeen(1, 1, 1, endpoints=endpoints)) for hop in hops}
        runtime.controller.seen(ProxyReport(gateway, "", 0.0, now, seen))
        runtime.controller.engine.settle()
        view = ControllerView(runtime)
        names = {"Gateway": ("a", "gw"), "ConfigMap": ("a", "ca"), "GatewayClass": ("", "lasthop"), "Service": ("a", "s1")}
        questions: dict[str, Callable[[], Awaitable[object]]] = {
            "page": lambda: page(PageModel(view), Filter()),
            "a page of many": lambda: page(PageModel(view), Filter(text="s", state=LineState.FAILING, page=7)),
            "what has changed": lambda: live(PageModel(view), Filter(), ""),
            "a line": lambda: _opened(PageModel(view)),
            "metrics": lambda: metrics(view),
            "audit": view.audit,
            "objects": view.objects,
            **{f"explain {kind}": partial(view.explain, Key(kind, *name)) for kind, name in names.items()},
        }
        gc.disable()
        try:
            held = {name: await _shortest(question) for name, question in questions.items()}
        finally:
            gc.enable()
    assert not {name: seconds for name, seconds in held.items() if seconds > HELD}, held


async def _shortest(question: Callable[[], Awaitable[object]]) -> float:
    """Returns the longest turn of the best of three tries: a core that others use too is slower for a while."""
    held = await _longest_turn(question)
    for _ in range(2):
        held = min(held, await _longest_turn(question)) if held > HELD else held
    return held


async def _opened(model: PageModel) -> object:
    (line, *_) = (await model.picture(Filter(page=1))).choice.rows
    assert isinstance(line, Line)
    return await model.detail(line.id)


async def _longest_turn(question: Callable[[], Awaitable[object]]) -> float:
    longest, done = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not done:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await asyncio.sleep(0)
        assert await question()
        await asyncio.sleep(0)
        done = True
    return longest
