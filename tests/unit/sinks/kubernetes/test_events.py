"""Events are recorded once, counted, and never block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lasthop.base.api.meta import Key
from lasthop.edge.sinks.kubernetes.events import EventRecorder
from tests.clock import Clock
from tests.fake_api import FakeApi, Refusal, client_of, until
from tests.metrics import count

ROUTE, CLASS = Key("HTTPRoute", "shop", "a"), Key("GatewayClass", "", "lasthop")


@asynccontextmanager
async def recording(api: FakeApi, **options: Any) -> AsyncIterator[tuple[EventRecorder, Clock]]:
    clock = Clock()
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        recorder = EventRecorder(client, "pod-1", clock=clock, **options)
        task = tasks.create_task(recorder.run())
        yield recorder, clock
        task.cancel()


async def test_an_event_names_its_object_and_reason(api: FakeApi) -> None:
    async with recording(api) as (recorder, _):
        recorder.emit(ROUTE, "uid-a", "BackendNotFound", "Service shop/erp does not exist", warning=True)
        recorder.emit(CLASS, "uid-c", "Accepted", "ours")
        await until(lambda: len(api.events) == 2)
    route, class_ = sorted(api.events, key=lambda event: event["type"], reverse=True)
    assert route["regarding"] == {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "name": "a",
        "namespace": "shop",
        "uid": "uid-a",
    }
    assert (route["type"], route["reason"], route["metadata"]["namespace"]) == ("Warning", "BackendNotFound", "shop")
    assert (class_["type"], class_["metadata"]["namespace"]) == ("Normal", "default")


async def test_repetitions_are_reported_once_in_ten_minutes_as_a_series(api: FakeApi) -> None:
    async with recording(api) as (recorder, clock):
        for _ in range(5):
            recorder.emit(ROUTE, "u", "Bad", "same")
        await until(lambda: count(recorder.counts, "recorded") == 1)
        assert count(recorder.counts, "suppressed") == 4 and len(api.events) == 1
        clock.now = 601.0
        recorder.emit(ROUTE, "u", "Bad", "same")
        await until(lambda: count(recorder.counts, "repeated") == 1)
        [event] = api.events
        assert event["series"]["count"] == 6


async def test_a_series_whose_event_has_expired_is_a_new_event(api: FakeApi) -> None:
    async with recording(api) as (recorder, clock):
        recorder.emit(ROUTE, "u", "Bad", "same")
        await until(lambda: count(recorder.counts, "recorded") == 1)
        api.objects["events"].clear()
        clock.now = 7200.0
        recorder.emit(ROUTE, "u", "Bad", "same")
        await until(lambda: len(api.events) == 1)


async def test_too_many_are_dropped_and_counted(api: FakeApi) -> None:
    async with recording(api, burst=10) as (recorder, _):
        for number in range(25):
            recorder.emit(ROUTE, "u", "Bad", str(number))
        await until(lambda: count(recorder.counts, "recorded") == 10)
        assert count(recorder.counts, "dropped") == 15


async def test_a_refusal_is_counted_and_nothing_else_happens(api: FakeApi) -> None:
    api.fail("create", "events", Refusal(403, "Forbidden"))
    async with recording(api) as (recorder, _):
        recorder.emit(ROUTE, "u", "Bad", "one")
        recorder.emit(ROUTE, "u", "Bad", "two")
        await until(lambda: count(recorder.counts, "recorded") == 1 and count(recorder.counts, "errors") == 1)


async def test_a_long_note_is_cut_at_1024_bytes(api: FakeApi) -> None:
    async with recording(api) as (recorder, _):
        recorder.emit(ROUTE, "u", "Bad", "é" * 2000)
        await until(lambda: api.events)
        assert len(api.events[0]["note"].encode()) == 1024


async def test_queued_events_are_dropped_when_the_lead_is_lost(api: FakeApi) -> None:
    leads = True
    async with recording(api, may_write=lambda: leads) as (recorder, _):
        recorder.emit(ROUTE, "u", "Bad", "one")
        leads = False
        await until(lambda: count(recorder.counts, "dropped") == 1)
        assert api.events == []
