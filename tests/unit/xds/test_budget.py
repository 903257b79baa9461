"""Every Gateway has a budget at the xDS server: its proxies can use up that, and nothing of another's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest

from lasthop.base.api.meta import Key
from lasthop.edge import slices
from lasthop.edge.xds import budget
from lasthop.edge.xds import server as module
from lasthop.edge.xds.budget import ALLOWANCE, BURST, LONGEST_NAME, MAX_REQUEST, RATE, Allotment, OverBudget, largest_request
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.server import XdsServer
from lasthop.edge.xds.session import LONGEST_DETAIL, Nacked, XdsSession
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS
from tests.unit.xds.playbook import clusters, endpoints, withdrawn
from tests.xds_client import proxy
from tests.xds_envoy import GATEWAY, Heard, short_directory, until

OTHER = Key("Gateway", "other", "web")


@pytest.fixture
def socket() -> Any:
    with short_directory() as directory:
        yield directory / "run" / "ads.sock"


@contextlib.asynccontextmanager
async def serving(socket: Path) -> AsyncIterator[tuple[XdsServer, Heard]]:
    heard = Heard()
    server = XdsServer(heard)
    await server.start(socket)
    server.update(GATEWAY, clusters("a=1"))
    server.update(OTHER, clusters("b=1"))
    server.open()
    try:
        yield server, heard
    finally:
        await server.close()


def request(
    type_url: str, *names: str, drops: tuple[str, ...] = (), nonce: str = "", versions: dict[str, str] | None = None
) -> DeltaDiscoveryRequest:
    return DeltaDiscoveryRequest(
        type_url=type_url,
        resource_names_subscribe=names,
        resource_names_unsubscribe=drops,
        initial_resource_versions=versions or {},
        response_nonce=nonce,
    )


MANY = tuple(f"n{number}" for number in range(ALLOWANCE + 2))
"""More than a Gateway with one cluster may name."""


@pytest.mark.parametrize(
    "asked",
    [
        request(CLUSTER, *MANY),
        request(CLUSTER, versions=dict.fromkeys(MANY, "1")),
        request(CLUSTER, drops=MANY),
        request(CLUSTER, "x" * (LONGEST_NAME + 1)),
        request(CLUSTER, versions={"x" * (LONGEST_NAME + 1): "1"}),
    ],
)
def test_more_names_than_the_gateway_has_and_longer_ones_are_refused(asked: DeltaDiscoveryRequest) -> None:
    cache = Cache()
    cache.apply(clusters("a=1"))
    with pytest.raises(OverBudget):
        XdsSession(cache).receive(asked, 0.0)


def test_names_are_counted_over_all_requests_of_a_stream() -> None:
    cache = Cache()
    cache.apply(clusters("a=1"))
    session = XdsSession(cache)
    session.receive(request(CLUSTER, "*"), 0.0)
    half = len(MANY) // 2
    session.receive(request(CLUSTER, *MANY[:half]), 0.0)
    with pytest.raises(OverBudget):
        session.receive(request(CLUSTER, *MANY[half:]), 0.0)
    with pytest.raises(OverBudget):  # of a wildcard, a name that is dropped has to be answered
        session.receive(request(CLUSTER, drops=MANY[half:]), 0.0)
    with pytest.raises(OverBudget):
        session.receive(request(CLUSTER, drops=("x" * (LONGEST_NAME + 1),)), 0.0)


def test_a_proxy_of_thousands_of_clusters_reconnects_with_all_it_has_and_what_is_gone_meanwhile() -> None:
    cache = Cache()
    names = [f"shop/web/shop/service-{number:05}/443/auto" for number in range(6_000)]
    gone = [f"shop/web/shop/removed-{number:05}/443/auto" for number in range(ALLOWANCE)]
    cache.apply(clusters(*(f"{name}=0123456789abcdef" for name in names)))
    cache.apply(endpoints(*(f"{name}@0123456789abcdef=0123456789abcdef" for name in names)))
    session = XdsSession(cache)
    for type_url, suffix in ((CLUSTER, ""), (ENDPOINTS, "@0123456789abcdef")):
        held = [f"{name}{suffix}" for name in (*names, *gone)]
        sent_request = request(type_url, *(held if suffix else ()), versions=dict.fromkeys(held, "0123456789abcdef"))
        assert sent_request.ByteSize() <= largest_request(cache.most)
        session.receive(sent_request, 0.0)
    removed = set()
    while response := session.poll(0.0):
        removed |= set(response.removed)
    assert removed >= set(gone), "and is told what is gone"


def test_the_largest_request_follows_what_exists_and_ends_at_grpcs_limit() -> None:
    assert largest_request(0) < 3 * 1024 * 1024 < largest_request(5_000) < largest_request(15_000) < MAX_REQUEST
    assert largest_request(10**6) == MAX_REQUEST
    with pytest.raises(OverBudget):
        budget.check_request(largest_request(7) + 1, 7)
    budget.check_request(largest_request(7), 7)


def test_responses_that_are_never_confirmed_end_the_stream() -> None:
    cache = Cache()
    cache.apply(clusters("a=1"))
    session = XdsSession(cache)
    session.receive(request(CLUSTER, "a"), 0.0)
    with pytest.raises(OverBudget):
        for _ in range(budget.MAX_UNCONFIRMED + 1):
            assert session.poll(0.0)
            session.receive(request(CLUSTER, "a"), 0.0)
    assert len(session._types[CLUSTER].in_flight) == budget.MAX_UNCONFIRMED


def test_only_the_beginning_of_a_refusal_is_read() -> None:
    cache = Cache()
    cache.apply(clusters("a=1"))
    session = XdsSession(cache)
    session.receive(request(CLUSTER), 0.0)
    response = session.poll(0.0)
    assert response
    refusal = request(CLUSTER, nonce=response.nonce)
    refusal.error_detail.message = "x" * (2 * LONGEST_DETAIL)
    (event,) = session.receive(refusal, 0.0)
    assert isinstance(event, Nacked) and len(event.detail) == LONGEST_DETAIL


def test_a_gateway_has_a_burst_then_a_rate_and_a_clock_set_back_gives_nothing() -> None:
    allotment = Allotment()
    assert allotment.wait(BURST, 100.0) == 0
    assert allotment.wait(RATE, 100.0) == pytest.approx(1.0)
    assert allotment.wait(0.0, 50.0) == pytest.approx(1.0)
    assert allotment.wait(0.0, 50.5) == pytest.approx(0.5)
    assert allotment.wait(BURST, 1e9) == 0, "no more than a burst is saved up"
    assert allotment.wait(1.0, 1e9) > 0


def test_large_requests_count_for_several() -> None:
    assert budget.cost(0) == 1
    assert budget.cost(MAX_REQUEST) > RATE


def test_requests_that_wait_are_counted_in_bytes() -> None:
    allotment = Allotment()
    allotment.pending = budget.MAX_PENDING - 10
    allotment.admit(10)
    with pytest.raises(OverBudget):
        allotment.admit(11)


async def test_a_client_above_the_budget_is_disconnected_with_the_reason_and_others_are_not(socket: Path) -> None:
    async with serving(socket) as (server, heard), proxy(socket) as hostile, proxy(socket, OTHER.path) as other:
        await other.ask(CLUSTER)
        assert [r.name for r in (await other.hear()).resources] == ["b"]
        await hostile.ask(CLUSTER, subscribe=MANY)
        assert await hostile.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: server.state(GATEWAY).proxies == 0)
        ((gateway, why),) = heard.refused
        assert gateway == GATEWAY and f"{len(MANY)} names" in why
        server.update(OTHER, clusters("b=2"))
        assert [r.version for r in (await other.hear()).resources] == ["2"]
        async with proxy(socket) as again:
            await again.ask(CLUSTER)
            assert [r.name for r in (await again.hear()).resources] == ["a"], "the Gateway's other proxies are served"


async def test_a_request_larger_than_the_gateway_needs_is_refused_unread(socket: Path) -> None:
    async with serving(socket) as (_, heard), proxy(socket) as hostile:
        await hostile.ask(CLUSTER)
        await hostile.hear()
        await hostile.ask(CLUSTER, subscribe=["x" * (largest_request(1) + 1)])
        assert await hostile.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "bytes" in heard.refused[0][1]


async def test_an_invalid_request_ends_its_stream(socket: Path) -> None:
    async with serving(socket) as (_, heard), proxy(socket) as hostile:
        await hostile.ask(CLUSTER)
        await hostile.hear()
        await hostile.write(b"\xff\xff")
        assert await hostile.ended() == grpc.StatusCode.INVALID_ARGUMENT
        assert heard.refused
    async with serving(socket) as (_, heard), proxy(socket) as hostile:
        await hostile.write(b"\xff\xff")
        assert await hostile.ended() == grpc.StatusCode.NOT_FOUND


async def test_a_gateway_has_so_many_streams_and_another_has_its_own(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 1)
    async with serving(socket) as (server, _):
        async with proxy(socket) as first, proxy(socket) as second, proxy(socket, OTHER.path) as other:
            await first.ask(CLUSTER)
            assert await first.hear()
            await second.ask(CLUSTER)
            assert await second.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
            await other.ask(CLUSTER)
            assert await other.hear()
        await until(lambda: server.state(GATEWAY).proxies == 0)
        async with proxy(socket) as third:
            await third.ask(CLUSTER)
            assert await third.hear(), "a stream that ends makes room"


async def test_unknown_names_are_counted_over_all_streams_of_a_gateway(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_EXCESS", 30)
    async with serving(socket) as (_, heard), proxy(socket) as first, proxy(socket) as second:
        await first.ask(ENDPOINTS, subscribe=MANY[:20])
        assert await first.hear()
        await second.ask(ENDPOINTS, subscribe=MANY[:20])
        assert await second.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "40 names" in heard.refused[0][1]


class Counting(Allotment):
    """Records how long requests would have to wait, by a stopped clock, and lets them wait a moment."""

    def __init__(self) -> None:
        super().__init__(burst=30.0)
        self.waits: list[float] = []

    def wait(self, cost: float, now: float) -> float:
        self.waits.append(super().wait(cost, 0.0))
        return min(self.waits[-1], 0.001)


async def test_requests_beyond_the_rate_wait_and_are_answered(socket: Path) -> None:
    async with serving(socket) as (server, _), proxy(socket) as envoy:
        server._gateways[GATEWAY].allotment = counting = Counting()
        for _ in range(20):
            await envoy.ask(CLUSTER, subscribe=["a"])
            assert await envoy.hear()
    assert counting.waits[0] == 0 and counting.waits[-1] > 0


class Waiting(Allotment):
    """Lets streams in, and has their requests wait for a turn that does not come."""

    def wait(self, cost: float, now: float) -> float:
        return 0.0 if cost == budget.STREAM else 3600.0


async def test_requests_that_wait_for_their_turn_are_bounded_and_give_their_place_back(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MAX_PENDING", 200)
    async with serving(socket) as (server, heard):
        server._gateways[GATEWAY].allotment = waiting = Waiting()
        async with proxy(socket) as first, proxy(socket) as second:
            await first.ask(CLUSTER, subscribe=["a" * 100])
            await until(lambda: waiting.pending > 100)
            await second.ask(CLUSTER, subscribe=["a" * 100])
            assert await second.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "already queued" in heard.refused[0][1]
        await until(lambda: waiting.pending == 0)


async def test_a_refusal_counts_for_many_requests(socket: Path) -> None:
    async with serving(socket) as (server, heard), proxy(socket) as envoy:
        server._gateways[GATEWAY].allotment = counting = Counting()
        await envoy.ask(CLUSTER)
        await envoy.ask(CLUSTER, nonce=(await envoy.hear()).nonce, error="no")
        await until(lambda: heard.nacks)
        await until(lambda: counting.waits[-1] > 0)
        assert not any(counting.waits[:-1])


async def test_a_large_request_is_taken_in_slices_and_nothing_is_sent_before_the_last(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts turns of the event loop: with no time for a slice, others have one after each name."""
    monkeypatch.setattr(slices, "SLICE", -1.0)
    async with serving(socket) as (server, _), proxy(socket) as envoy:
        turns = begun = sent = 0
        await envoy.ask(CLUSTER, subscribe=["a", *MANY[:500]])
        answer = asyncio.ensure_future(envoy.hear())
        while not answer.done():
            turns += 1
            streams = server._gateways[GATEWAY].streams
            begun += any(stream.in_use.locked() for stream in streams)
            sent += any(stream.in_use.locked() for stream in streams) and server.traffic[CLUSTER].responses
            await asyncio.sleep(0)
        assert begun >= 500 and sent == 0


def test_changes_during_a_request_are_not_lost() -> None:
    cache = Cache()
    cache.apply(clusters(*(f"c{number}=1" for number in range(50))))
    session = XdsSession(cache)
    steps = session.receiving(request(CLUSTER, versions={f"c{number}": "1" for number in range(50)}), 0.0)
    for _ in range(95):
        next(steps)
    cache.apply(clusters("c3=2", "new=1"))
    cache.apply(withdrawn(CLUSTER, "c4", urgent=True))
    assert not session.synced and session.sent(CLUSTER) is None, "half of it is not known to anybody"
    for _ in steps:
        pass
    urgent, update = session.poll(0.0), session.poll(1.0)
    assert urgent and urgent.removed == ("c4",)
    assert update and {r.name: r.version for r in update.resources} == {"c3": "2", "new": "1"}
