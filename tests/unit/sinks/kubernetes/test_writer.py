"""Statuses reach the cluster: once, merged, by the leader, and not too fast."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import AncestorReference
from lasthop.base.api.status import AncestorStatus, PolicyStatus, RouteStatus
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.observed import ObservedStatus, ObservedStatuses
from lasthop.edge.kubernetes.ratelimit import Pace, TokenBucket
from lasthop.edge.sinks.kubernetes.writer import LIMITS, StatusWriter, WriteGuard, WriteLimits
from tests.api_objects import foreign, mk_condition, mk_parent, mk_policy, mk_route
from tests.clock import Clock
from tests.fake_api import FakeApi, Refusal, client_of, until
from tests.metrics import count, counts

A = Key("HTTPRoute", "shop", "a")
ACCEPTED = RouteStatus((mk_parent("gw"),))
REFUSED = RouteStatus((mk_parent("gw", mk_condition(status="False")),))


def observe(observed: ObservedStatuses, api: FakeApi, *names: str) -> None:
    """Returns the object as the watch would show it now."""
    for name in names:
        obj = api.get("httproutes", name, "shop")
        status = msgspec.json.encode(obj["status"]) if obj.get("status") else b""
        held = ObservedStatus(obj["metadata"]["resourceVersion"], status, obj["metadata"]["generation"])
        observed.observe(Key("HTTPRoute", "shop", name), held)


def touch(api: FakeApi, name: str, **changes: Any) -> None:
    """Writes as another client."""
    obj = copy.deepcopy(api.get("httproutes", name, "shop"))
    api.put("httproutes", {**obj, **changes})


class WatchedClient(Client):
    """Signals when a write begins, and when it is done but not yet answered."""

    before_put: Callable[[], None] = staticmethod(lambda: None)
    after_put: Callable[[], None] = staticmethod(lambda: None)

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method != "PUT":
            return await super().request(method, path, **options)
        self.before_put()
        answer = await super().request(method, path, **options)
        self.after_put()
        return answer


@asynccontextmanager
async def writing(
    api: FakeApi,
    *names: str,
    lead: bool = True,
    guard: WriteGuard | None = None,
    client: Client | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **limits: Any,
) -> AsyncIterator[tuple[StatusWriter, ObservedStatuses]]:
    for name in names:
        api.put("httproutes", mk_route(name))
    observed = ObservedStatuses()
    observed.versions["HTTPRoute"] = "v1"
    async with client or client_of(api) as used:
        write_limits = WriteLimits(**{"dispute": 0.05, **limits})
        writer = StatusWriter(used, observed, guard=guard, limits=write_limits, clock=clock, sleep=sleep)
        observe(observed, api, *names)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(writer.run())
            writer.lead(lead)
            yield writer, observed
            task.cancel()


def accepted(api: FakeApi, name: str = "a") -> str | None:
    parents = (api.get("httproutes", name, "shop").get("status") or {}).get("parents") or []
    return next((p["conditions"][0]["status"] for p in parents if p["controllerName"].startswith("lasthop.dev")), None)


async def test_a_status_is_written_with_one_request(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: accepted(api) == "True")
        await until(lambda: not writer.pending)
    assert not api.asked("get", "httproutes") and len(api.asked("update", "httproutes")) == 1
    assert api.get("httproutes", "a", "shop")["spec"]["parentRefs"]


async def test_a_new_status_wakes_one_writer(api: FakeApi) -> None:
    """The others do not wait for the same calm: waking them was most of the cost of a write."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(seconds)

    async with writing(api, "a", sleep=sleep, calm=0.01) as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1 and not writer.pending)
    assert len([pause for pause in slept if pause > 0]) == 1


async def test_no_write_when_nothing_changed(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, observed):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        writer.want({A: ACCEPTED})
        observe(observed, api, "a")
        await until(lambda: not writer.pending)
        assert counts(writer.counts) == {"writes": 1, "unchanged": 1}


async def test_after_a_restart_nothing_is_rewritten_or_even_read(api: FakeApi) -> None:
    async with writing(api, "a", "b") as (writer, _):
        writer.want({A: ACCEPTED, Key("HTTPRoute", "shop", "b"): ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 2)
    api.requests.clear()
    observed = ObservedStatuses()
    observed.versions["HTTPRoute"] = "v1"
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        again = StatusWriter(client, observed)
        observe(observed, api, "a", "b")
        task = tasks.create_task(again.run())
        again.lead(True)
        again.want({A: ACCEPTED, Key("HTTPRoute", "shop", "b"): ACCEPTED})
        await until(lambda: count(again.counts, "unchanged") == 2)
        task.cancel()
    assert not api.requests


async def test_a_conflict_is_read_merged_and_tried_again(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, _):
        touch(api, "a", status={"parents": [foreign("parentRef", "x")]})  # and our watch does not know yet
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        assert count(writer.counts, "conflicts") == 1
        [theirs, ours] = api.get("httproutes", "a", "shop")["status"]["parents"]
        assert theirs == foreign("parentRef", "x") and ours["parentRef"]["name"] == "gw"


async def test_foreign_entries_survive_a_change_of_ours(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, observed):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        standing = api.get("httproutes", "a", "shop")["status"]["parents"]
        touch(api, "a", status={"parents": [*standing, foreign("parentRef", "x")]})
        observe(observed, api, "a")
        writer.want({A: REFUSED})
        await until(lambda: accepted(api) == "False")
        assert api.get("httproutes", "a", "shop")["status"]["parents"][1] == foreign("parentRef", "x")


async def test_a_removed_status_is_restored_but_not_in_a_race(api: FakeApi) -> None:
    async with writing(api, "a", dispute=0.1) as (writer, observed):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        for _ in range(3):
            touch(api, "a", status={})
            observe(observed, api, "a")
        assert count(writer.counts, "writes") == 1
        await until(lambda: count(writer.counts, "writes") == 2)
        assert accepted(api) == "True"


async def test_a_removal_seen_before_our_own_write_was_answered_is_put_right_too(api: FakeApi) -> None:
    def overtaken() -> None:
        if count(writer.counts, "writes") == 0:
            touch(api, "a", status={})
            observe(observed, api, "a")

    client = WatchedClient(api.access)  # type: ignore[arg-type]
    client.after_put = overtaken
    async with writing(api, "a", client=client) as (writer, observed):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 2)
        assert accepted(api) == "True"


async def test_our_own_write_seen_before_it_was_answered_is_not_looked_at_again(api: FakeApi) -> None:
    client = WatchedClient(api.access)  # type: ignore[arg-type]
    client.after_put = lambda: observe(observed, api, "a")
    async with writing(api, "a", client=client) as (writer, observed):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        await until(lambda: not writer.pending)
        assert not writer.waiting and count(writer.counts, "unchanged") == 0


async def test_the_newest_wish_wins(api: FakeApi) -> None:
    api.slow = 0.02
    async with writing(api, "a") as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: api.in_flight)
        for generation in range(5):
            writer.want({A: RouteStatus((mk_parent("gw", mk_condition(message=str(generation))),))})
        writer.want({A: REFUSED})
        await until(lambda: accepted(api) == "False")
        await until(lambda: not writer.pending)
        assert count(writer.counts, "writes") == 2


async def test_at_most_n_writes_in_flight_and_a_rate(api: FakeApi) -> None:
    names = [f"r{n}" for n in range(30)]
    api.slow = 0.01
    async with writing(api, *names, in_flight=3, rate=200.0, most=200.0, burst=10) as (writer, _):
        started = asyncio.get_running_loop().time()
        writer.want({Key("HTTPRoute", "shop", name): ACCEPTED for name in names})
        await until(lambda: count(writer.counts, "writes") == 30)
        assert asyncio.get_running_loop().time() - started >= 20 / 200
    assert api.most_in_flight == 3


async def test_nothing_is_written_without_the_lead_and_everything_with_it(api: FakeApi) -> None:
    async with writing(api, "a", "b", lead=False) as (writer, _), client_of(api) as other:
        writer.want({A: ACCEPTED, Key("HTTPRoute", "shop", "b"): ACCEPTED})
        await other.get("/api/v1/namespaces")  # requested after it, and answered
        assert [verb for verb, _, _ in api.requests] == ["list"]
        writer.lead(True)
        await until(lambda: count(writer.counts, "writes") == 2)


async def test_the_first_status_waits_until_edits_pause_and_not_for_long_if_they_do_not(api: FakeApi) -> None:
    clock, waited = Clock(), list[float]()

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if seconds:
            waited.append(round(seconds, 3))

    async with writing(api, "a", "b", "c", clock=clock, sleep=sleep, in_flight=1, calm=0.05, longest_calm=0.5) as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 1)
        assert waited == [0.05]
        for name in ("a", "b", "c"):  # they go on for 0.48 s, no two of them 0.05 s apart
            for _ in range(4):
                writer.want({Key("HTTPRoute", "shop", name): REFUSED})
                clock.now += 0.04
        await until(lambda: count(writer.counts, "writes") == 4)
        assert waited == [0.05, 0.01]
        writer.want({A: ACCEPTED})
        clock.now += 0.51
        writer.want({Key("HTTPRoute", "shop", "b"): ACCEPTED})
        await until(lambda: count(writer.counts, "writes") == 6)
        assert waited == [0.05, 0.01]


async def test_losing_the_lead_drops_queued_writes_at_once(api: FakeApi) -> None:
    names = [f"r{n}" for n in range(20)]
    led: list[bool] = []
    woken: list[float] = []
    turn = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds:  # beyond the burst
            await turn.wait()
            woken.append(seconds)

    client = WatchedClient(api.access)  # type: ignore[arg-type]
    client.before_put = lambda: led.append(writer.leading)
    async with writing(api, *names, client=client, burst=5, calm=0.0, clock=Clock(), sleep=sleep) as (writer, _):
        writer.want({Key("HTTPRoute", "shop", name): ACCEPTED for name in names})
        await until(lambda: count(writer.counts, "writes") == 5)
        writer.lead(False)
        turn.set()
        await until(lambda: len(woken) == LIMITS.in_flight)
        assert (len(led), writer.pending) == (5, 15)
        writer.lead(True)
        await until(lambda: count(writer.counts, "writes") == 20)
        assert all(led)


class Closed(WriteGuard):
    asked = 0

    def may_write(self) -> bool:
        self.asked += 1
        return False


async def test_a_lease_that_ran_out_while_frozen_forbids_the_write(api: FakeApi) -> None:
    guard = Closed()
    async with writing(api, "a", guard=guard) as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: guard.asked > 3)
        assert not api.asked("update", "httproutes")


async def test_a_server_that_is_away_is_tried_again(api: FakeApi) -> None:
    api.fail("update", "httproutes", Refusal(503, "ServiceUnavailable"))
    async with writing(api, "a") as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: accepted(api) == "True")
        assert count(writer.counts, "errors") == 1


async def test_an_object_that_is_gone_is_dropped(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, observed):
        api.delete("httproutes", "a", "shop")
        writer.want({A: ACCEPTED})
        await until(lambda: not writer.pending)
        assert observed.get(A) is None and count(writer.counts, "writes") == 0


async def test_a_status_about_a_former_object_of_that_name_is_not_written(api: FakeApi) -> None:
    async with writing(api, "a") as (writer, _):
        writer.want({A: RouteStatus((mk_parent("gw", mk_condition(generation=9)),))})
        await until(lambda: count(writer.counts, "outdated") == 1)
        assert not api.asked("update", "httproutes")


async def test_a_refusal_by_validation_is_not_repeated(api: FakeApi) -> None:
    api.fail("update", "httproutes", "*", Refusal(422, "Invalid", "status.parents: too many"))
    async with writing(api, "a") as (writer, _):
        writer.want({A: ACCEPTED})
        await until(lambda: count(writer.counts, "errors") == 1 and not writer.pending)
        assert len(api.asked("update", "httproutes")) == 1


def test_token_bucket() -> None:
    now = 0.0
    bucket = TokenBucket(rate=10.0, burst=2, clock=lambda: now)
    assert [round(bucket.take(), 3) for _ in range(4)] == [0.0, 0.0, 0.1, 0.2]
    assert not bucket.try_take()
    now = 1.0
    assert bucket.try_take() and bucket.try_take() and not bucket.try_take()


def test_a_pace_grows_with_quick_answers_and_is_halved_once_a_second_by_slow_ones_and_refusals() -> None:
    clock = Clock(0.0)
    pace = Pace(100.0, 1000.0, 10, clock)
    for _ in range(2_000):
        pace.answered(0.005)
    assert pace.rate == 1000.0
    pace.answered(0.09)
    assert pace.rate == 1000.0, "that is quick enough"
    for _ in range(5):
        pace.answered(0.5)
    assert pace.rate == 500.0
    clock.now += 1
    pace.refused()
    assert pace.rate == 250.0
    for _ in range(20):
        clock.now += 1
        pace.refused()
    assert pace.rate == 10.0, "never quite silent"
    for _ in range(1_000):
        pace.answered(0.5)
    assert pace.rate > 500, "a server that is always as slow is no busier for it"


async def test_statuses_of_recent_edits_precede_those_of_a_start(api: FakeApi) -> None:
    many, edited = [f"r{n:03}" for n in range(60)], ["r030", "r059"]
    keys = {name: Key("HTTPRoute", "shop", name) for name in many}
    written: list[str] = []

    class Noting(WriteGuard):
        def written(self, key: Key, before: Json, after: Json) -> None:
            written.append(key.name)

    async with writing(api, *many, lead=False, guard=Noting(), in_flight=1, rate=1e6, most=1e6) as (writer, _):
        writer.want({keys[name]: ACCEPTED for name in many})
        writer.want({keys[name]: REFUSED for name in edited})
        writer.lead(True)
        await until(lambda: count(writer.counts, "writes") == 60)
    assert written[:2] == edited


async def test_what_was_seen_on_the_wire_is_written_at_most_once_in_a_while_and_other_news_at_once(api: FakeApi) -> None:
    key, clock = Key("BackendTLSPolicy", "shop", "p"), Clock(1000.0)
    obj = api.put("backendtlspolicies", mk_policy("p"))
    observed = ObservedStatuses()
    observed.versions["BackendTLSPolicy"] = "v1"
    observed.observe(key, ObservedStatus(obj["metadata"]["resourceVersion"], b"", obj["metadata"]["generation"]))

    def status(connected: str, accepted: str = "True") -> PolicyStatus:
        conditions = (mk_condition(status=accepted), mk_condition("BackendConnected", connected))
        return PolicyStatus((AncestorStatus(AncestorReference("gw"), CONTROLLER_NAME, conditions),))

    def written() -> list[str]:
        (entry,) = api.get("backendtlspolicies", "p", "shop")["status"]["ancestors"]
        return [condition["status"] for condition in entry["conditions"]]

    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        writer = StatusWriter(client, observed, limits=WriteLimits(observations=30.0, calm=0.0), clock=clock)
        task = tasks.create_task(writer.run())
        writer.lead(True)
        writer.want({key: status("Unknown")})
        await until(lambda: count(writer.counts, "writes") == 1)
        clock.now += 29
        for connected in ("False", "True", "False"):
            writer.want({key: status(connected)})
            await until(lambda: writer.waiting == {key})
        assert written() == ["True", "Unknown"]
        writer.want({key: status("False", accepted="False")})
        await until(lambda: count(writer.counts, "writes") == 2)
        assert written() == ["False", "False"]
        clock.now += 30
        writer.want({key: status("True", accepted="False")})
        await until(lambda: written() == ["False", "True"])
        await until(lambda: count(writer.counts, "writes") == 3)  # it is counted once the answer has come
        task.cancel()
