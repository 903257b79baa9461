"""The Lease: which replica writes, and when another one takes over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest

from lasthop.edge.kubernetes.lease import (
    TIMING,
    LeaderElector,
    Leadership,
    LeaseAction,
    LeaseObservation,
    LeaseTiming,
    acquired,
    decide,
    record_of,
)
from tests.backends import PATIENCE
from tests.fake_api import FakeApi, Refusal, client_of, serving, until

LONG = 30
"""Seconds of a lease that nobody waits for."""
QUICK = LeaseTiming(duration=2, renew_deadline=0.6, renew_interval=0.1, look_interval=0.05)


class Log(Leadership):
    def __init__(self) -> None:
        self.events: list[str] = []

    def started_leading(self) -> None:
        self.events.append("started")

    def stopped_leading(self) -> None:
        self.events.append("stopped")


def mk_lease(holder: str, renewed: str = "t0", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "lasthop"}, "spec": {"holderIdentity": holder, "renewTime": renewed, **spec}}


@asynccontextmanager
async def electing(
    api: FakeApi, identity: str, annotations: dict[str, str] | None = None, **timing: Any
) -> AsyncIterator[tuple[LeaderElector, asyncio.Task[None], list[str]]]:
    log = Log()
    async with client_of(api) as client:
        quick = msgspec.structs.replace(QUICK, **timing)
        elector = LeaderElector(client, "system", "lasthop", identity, log, timing=quick, annotations=annotations)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(elector.run())
            yield elector, task, log.events
            task.cancel()


def spec_of(api: FakeApi) -> dict[str, Any]:
    spec: dict[str, Any] = api.get("leases", "lasthop", "system")["spec"]
    return spec


def test_take_over_is_within_15_seconds_and_never_overlaps() -> None:
    assert TIMING.look_interval + TIMING.duration + TIMING.look_interval < 15
    assert TIMING.renew_interval < TIMING.renew_deadline < TIMING.duration


def test_decisions() -> None:
    theirs = mk_lease("other", leaseDurationSeconds=10)
    seen = LeaseObservation(record_of(theirs), at=100.0)
    assert decide(None, None, "me", 0.0) is LeaseAction.CREATE
    assert decide(mk_lease(""), None, "me", 0.0) is LeaseAction.TAKE
    assert decide(mk_lease("me"), None, "me", 0.0) is LeaseAction.RENEW
    assert decide(theirs, None, "me", 1e9) is LeaseAction.WAIT  # seen for the first time, for any age that it claims
    assert decide(theirs, seen, "me", 109.9) is LeaseAction.WAIT
    assert decide(theirs, seen, "me", 110.0) is LeaseAction.TAKE
    assert decide(mk_lease("other", "t1", leaseDurationSeconds=10), seen, "me", 110.0) is LeaseAction.WAIT  # it has moved


def test_what_is_written() -> None:
    lease = acquired({"metadata": {"name": "l"}}, "me", "t1", 10, {})
    assert lease["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 10, "renewTime": "t1", "acquireTime": "t1"}
    renewed = acquired(lease, "me", "t2", 10, {})
    assert (renewed["spec"]["acquireTime"], renewed["spec"]["renewTime"]) == ("t1", "t2")
    over = acquired({**renewed, "unknown": 1}, "other", "t3", 10, {"lasthop.dev/address": "10.0.0.1"})
    assert over["spec"]["leaseTransitions"] == 1 and over["unknown"] == 1
    assert over["metadata"] == {"name": "l", "annotations": {"lasthop.dev/address": "10.0.0.1"}}


async def test_the_first_takes_it_and_renews(api: FakeApi) -> None:
    async with electing(api, "one") as (elector, _, log):
        await until(lambda: elector.leading)
        first = spec_of(api)["renewTime"]
        await until(lambda: spec_of(api)["renewTime"] != first)
        assert log == ["started"] and spec_of(api)["holderIdentity"] == "one" and elector.certain


async def test_the_second_waits_and_takes_over_from_one_that_dies(api: FakeApi) -> None:
    api.put("leases", {**mk_lease("dead", leaseDurationSeconds=1), "metadata": {"name": "lasthop", "namespace": "system"}})
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with electing(api, "two", annotations={"lasthop.dev/address": "10.0.0.2"}) as (elector, _, _log):
        await until(lambda: elector.holder == "dead")
        assert not elector.leading
        await until(lambda: elector.leading)
        assert loop.time() - started >= 1.0
        assert spec_of(api)["leaseTransitions"] == 1
        assert elector.holder_annotations == {"lasthop.dev/address": "10.0.0.2"}


async def test_a_clean_end_gives_it_back_at_once(api: FakeApi) -> None:
    async with electing(api, "one") as (one, task, log):
        await until(lambda: one.leading)
        async with electing(api, "two") as (two, _, _log):
            await until(lambda: two.holder == "one")
            task.cancel()
            await until(lambda: two.leading)
            assert log == ["started", "stopped"]


async def test_a_leader_that_cannot_renew_stops_before_the_lease_ends(api: FakeApi) -> None:
    async with electing(api, "one", duration=LONG) as (elector, _, log):
        await until(lambda: elector.leading)
        loop = asyncio.get_running_loop()
        lost = loop.time()
        for verb in ("get", "update"):
            api.fail(verb, "leases", "*", Refusal(503, "ServiceUnavailable"))
        await until(lambda: not elector.leading)
        assert loop.time() - lost < LONG
        assert log == ["started", "stopped"]
        api.faults.clear()
        await until(lambda: elector.leading)


async def test_a_leader_whose_server_is_silent_stops_in_time(api: FakeApi) -> None:
    async with electing(api, "one", duration=LONG) as (elector, _, _log):
        await until(lambda: elector.leading)
        lost = asyncio.get_running_loop().time()
        for verb in ("get", "update"):
            api.fail(verb, "leases", "*", "silence")
        await until(lambda: not elector.leading)
        assert asyncio.get_running_loop().time() - lost < LONG


async def test_a_leader_that_finds_another_name_in_the_lease_stops_at_once(api: FakeApi) -> None:
    async with electing(api, "one") as (elector, _, log):
        await until(lambda: elector.leading)
        usurped = {**mk_lease("two", leaseDurationSeconds=60), "metadata": {"name": "lasthop", "namespace": "system"}}
        api.put("leases", usurped)
        await until(lambda: not elector.leading)
        await until(lambda: elector.holder == "two")
        assert log == ["started", "stopped"]


async def test_a_lease_deleted_under_a_leader_is_made_again(api: FakeApi) -> None:
    async with electing(api, "one") as (elector, _, log):
        await until(lambda: elector.leading)
        api.delete("leases", "lasthop", "system")
        await until(lambda: ("system", "lasthop") in api.objects["leases"])
        assert elector.leading and log == ["started"]


async def test_a_leader_that_was_frozen_is_not_certain_any_more(api: FakeApi) -> None:
    now = [100.0]
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        elector = LeaderElector(client, "system", "lasthop", "one", Leadership(), clock=lambda: now[0])
        task = tasks.create_task(elector.run())
        await until(lambda: elector.leading)
        assert elector.certain
        now[0] += TIMING.duration
        assert elector.leading and not elector.certain
        task.cancel()


@contextmanager
def api_elsewhere() -> Iterator[FakeApi]:
    """An API server in a separate thread, which answers while the test's event loop does not run."""
    api, ready, stop = FakeApi(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(api):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield api
    finally:
        stop.set()
        thread.join()


def blocked_until(true: Callable[[], bool]) -> None:
    """Waits without giving the event loop a turn."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


async def test_a_stalled_event_loop_does_not_cost_the_lease() -> None:
    with api_elsewhere() as api:
        async with electing(api, "one") as (elector, _, log):
            await until(lambda: elector.certain)
            renewed = len(api.asked("update", "leases"))
            blocked_until(lambda: len(api.asked("update", "leases")) > renewed + 20)
            assert elector.certain and log == ["started"] and spec_of(api)["holderIdentity"] == "one"


async def test_a_lease_lost_while_the_event_loop_is_stalled_stops_the_writing_before_the_loop_runs_again() -> None:
    with api_elsewhere() as api:
        async with electing(api, "one") as (elector, _, log):
            await until(lambda: elector.certain)
            for verb in ("get", "update"):
                api.fail(verb, "leases", "*", Refusal(503, "ServiceUnavailable"))
            blocked_until(lambda: not elector.certain)
            assert log == ["started"], "that is told when there is a turn"
            api.faults.clear()
            blocked_until(lambda: elector._held == 2)
            assert not elector.certain, "it was another's in between, for all that is known"
            await until(lambda: log == ["started", "stopped", "started"])
            assert elector.certain


async def test_an_error_of_the_thread_ends_the_run(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with client_of(api) as client:
        elector = LeaderElector(client, "system", "lasthop", "one", Leadership())
        monkeypatch.setattr(elector, "_elect", broken)
        with pytest.RaisesGroup(ZeroDivisionError):
            await elector.run()


async def test_a_lease_is_not_certain_any_more_when_it_is_released_after_an_error(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain: list[bool] = []
    async with client_of(api) as client:
        elector = LeaderElector(client, "system", "lasthop", "one", Leadership())

        async def broken() -> None:
            while not elector.certain:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            raise ZeroDivisionError

        async def release() -> None:
            certain.append(elector.certain)

        monkeypatch.setattr(elector, "_lead", broken)
        monkeypatch.setattr(elector, "_release", release)
        with pytest.RaisesGroup(ZeroDivisionError):
            await elector.run()
    assert certain == [False]


async def test_nothing_is_led_after_the_end(api: FakeApi) -> None:
    async with electing(api, "one") as (elector, task, log):
        await until(lambda: elector.leading)
        task.cancel()
        await until(task.done)
        elector._lead_in(7)
        assert log == ["started", "stopped"] and not elector.leading
        assert spec_of(api)["holderIdentity"] == ""
