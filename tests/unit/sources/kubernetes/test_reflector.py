"""Every fault of a list or a watch, by its name."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lasthop.base.api.core import ConfigMap
from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.ratelimit import Backoff
from lasthop.edge.sources.kubernetes.reflector import STALE_LISTS
from tests.api_objects import mk_config_map, mk_route
from tests.fake_api import FakeApi, Refusal, serving, until
from tests.unit.sources.kubernetes.reflecting import FAST, reflecting


async def test_streaming_list_reads_everything_in_one_request(api: FakeApi) -> None:
    for name in ("a", "b", "c"):
        api.put("httproutes", mk_route(name))
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        assert memory.names == ["a", "b", "c"]
        api.put("httproutes", mk_route("d"))
        await until(lambda: "d" in memory.names)
    assert not api.asked("list", "httproutes")
    [query] = api.asked("watch", "httproutes")
    assert query["sendInitialEvents"] == "true" and query["resourceVersionMatch"] == "NotOlderThan"
    assert query["allowWatchBookmarks"] == "true"
    assert not memory.ended


async def test_streaming_list_falls_back_to_pages(api: FakeApi) -> None:
    api.streaming = False
    for number in range(7):
        api.put("httproutes", mk_route(f"r{number}"))
    async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, page=3)) as (_, memory):
        await until(lambda: memory.wholes and api.watching("httproutes"))
        assert len(memory.names) == 7 and memory.wholes == 1
        api.delete("httproutes", "r0", "shop")
        await until(lambda: "r0" not in memory.names)
    assert [bool(query.get("continue")) for query in api.asked("list", "httproutes")] == [False, True, True]
    assert memory.ended == {"422": 1} and memory.error is None


async def test_streaming_list_that_never_completes_falls_back_to_pages(api: FakeApi) -> None:
    """A server that ignores the parameter sends a watch without the bookmark."""
    api.put("httproutes", mk_route("a"))
    api.beginning = lambda events: []
    async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, idle=0.1)) as (_, memory):
        await until(lambda: memory.wholes)
        assert memory.names == ["a"] and api.asked("list", "httproutes")


async def test_half_a_streaming_list_counts_for_nothing(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    cut = iter([True])
    api.beginning = lambda events: [events[0], "reset"] if next(cut, False) else events
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        assert memory.log == ["+a"] and memory.ended == {"reset": 1}


async def test_an_ordinary_bookmark_does_not_complete_a_streaming_list(api: FakeApi) -> None:
    added = {"type": "ADDED", "object": api.put("httproutes", mk_route("a"))}
    api.beginning = lambda events: []
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: api.watching("httproutes"))
        api.bookmark("httproutes")
        api.say("httproutes", added)
        meta = {"resourceVersion": str(api.version), "annotations": {"k8s.io/initial-events-end": "true"}}
        api.say("httproutes", {"type": "BOOKMARK", "object": {"metadata": meta}})
        await until(lambda: memory.wholes)
        assert (memory.wholes, memory.names_when_whole) == (1, ["a"]), "not before"


async def test_clean_end_resumes_where_it_was(api: FakeApi) -> None:
    api.put("httproutes", mk_route("a"))
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: api.watching("httproutes"))
        await until(lambda: memory.wholes)
        api.end("httproutes")
        await until(lambda: memory.ended.get("end"))
        api.put("httproutes", mk_route("b"))
        await until(lambda: "b" in memory.names)
        assert memory.wholes == 1 and memory.log == ["+a", "+b"]
    assert memory.ended["end"] == 1
    assert not api.asked("list", "httproutes")
    assert "sendInitialEvents" not in api.asked("watch", "httproutes")[-1]


@pytest.mark.parametrize("as_status", [False, True], ids=["as_event", "as_http_status"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "pages"])
async def test_410_relists_and_reports_deletions_during_the_gap(api: FakeApi, as_status: bool, streaming: bool) -> None:
    api.gone_as_status, api.streaming = as_status, streaming
    for name in ("stays", "goes", "changes"):
        api.put("httproutes", mk_route(name))
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes and api.watching("httproutes"))
        memory.log.clear()
        api.fail("watch", "httproutes", *([Refusal(503, "ServiceUnavailable")] * 3))
        api.end("httproutes")
        await until(lambda: not api.watching("httproutes"))
        api.delete("httproutes", "goes", "shop")
        api.put("httproutes", mk_route("changes", hostnames=["x.example.com"]))
        api.put("httproutes", mk_route("new"))
        api.compact()
        await until(lambda: memory.wholes == 2)
        assert sorted(memory.log) == ["+changes", "+new", "-goes"]  # unchanged objects are not passed on again
        assert memory.names == ["changes", "new", "stays"]
        await until(lambda: memory.error is None)
    assert memory.ended["410"] == 1


async def test_410_in_the_middle_of_pages_starts_over(api: FakeApi) -> None:
    api.streaming = False
    for number in range(5):
        api.put("httproutes", mk_route(f"r{number}"))
    api.fail("list", "httproutes", "none", Refusal(410, "Expired"))
    async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, page=2)) as (_, memory):
        await until(lambda: memory.wholes)
        assert len(memory.names) == 5 and len(memory.log) == 5


async def test_reset_resumes_and_loses_nothing(api: FakeApi) -> None:
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        api.put("httproutes", mk_route("a"))
        api.reset("httproutes")
        api.put("httproutes", mk_route("b"))
        await until(lambda: memory.names == ["a", "b"])
        assert memory.wholes == 1 and memory.ended["reset"] == 1


async def test_silence_is_noticed(api: FakeApi) -> None:
    """A dead connection that was never closed: no bytes, not even the bookmark that is due."""
    async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, idle=0.15)) as (_, memory):
        await until(lambda: memory.wholes)
        api.streams["httproutes"].clear()  # this stream sends nothing from now on
        api.put("httproutes", mk_route("a"))
        await until(lambda: memory.names == ["a"])
        assert memory.ended["silent"] >= 1 and memory.wholes == 1


async def test_silence_in_answer_to_a_list_is_noticed() -> None:
    api = FakeApi()
    async with serving(api):
        api.fail("watch", "httproutes", "silence")
        async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, idle=0.1)) as (_, memory):
            await until(lambda: memory.wholes)


async def test_bookmarks_move_the_version(api: FakeApi) -> None:
    """Nothing of this kind changes while others do; without bookmarks a resume would be 410."""
    async with reflecting(api, "HTTPRoute") as (reflector, memory):
        await until(lambda: memory.wholes)
        api.put("configmaps", mk_config_map("other"))
        api.compact()
        api.bookmark("httproutes")
        await until(lambda: reflector.version == str(api.version))
        api.end("httproutes")
        await until(lambda: len(api.asked("watch", "httproutes")) == 2)
        api.put("httproutes", mk_route("a"))
        await until(lambda: memory.names == ["a"])
        assert memory.wholes == 1 and "410" not in memory.ended


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "pages"])
async def test_1_mib_objects(api: FakeApi, streaming: bool) -> None:
    api.streaming = streaming
    large = "x" * 2**20
    api.put("configmaps", mk_config_map("before", **{"ca.crt": large}))
    async with reflecting(api, "ConfigMap") as (_, memory):
        await until(lambda: memory.wholes and api.watching("configmaps"))
        api.put("configmaps", mk_config_map("after", **{"ca.crt": large, "junk": "y"}))
        await until(lambda: memory.names == ["after", "before"])
        for obj in memory.objects.values():
            assert isinstance(obj, ConfigMap) and obj.data == (("ca.crt", large),)


async def test_out_of_order_relist_is_not_taken(api: FakeApi) -> None:
    """A lagging server's list lacks the newest object; to believe it would be to forget, say, a policy."""
    api.streaming = False
    api.put("httproutes", mk_route("old"))
    async with reflecting(api, "HTTPRoute") as (reflector, memory):
        await until(lambda: memory.wholes and api.watching("httproutes"))
        api.put("httproutes", mk_route("newest"))
        await until(lambda: "newest" in memory.names)
        api.lag = 1
        reflector.version = ""
        api.end("httproutes")
        await until(lambda: memory.ended["stale"] == 2)
        assert memory.names == ["newest", "old"]
        api.lag = 0
        await until(lambda: memory.wholes == 2)
        assert memory.names == ["newest", "old"] and "-newest" not in memory.log


async def test_an_etcd_restored_from_a_backup_is_believed_in_the_end(api: FakeApi) -> None:
    api.streaming = False
    api.put("httproutes", mk_route("before-backup"))
    async with reflecting(api, "HTTPRoute") as (reflector, memory):
        await until(lambda: memory.wholes and api.watching("httproutes"))
        api.put("httproutes", mk_route("after-backup"))
        await until(lambda: "after-backup" in memory.names)
        api.lag = 1
        api.history.clear()  # this server has never heard of it
        reflector.version = ""
        api.end("httproutes")
        await until(lambda: memory.wholes == 2)
        assert memory.names == ["before-backup"] and memory.ended["stale"] == STALE_LISTS


async def test_an_event_older_than_what_is_known_is_ignored(api: FakeApi) -> None:
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        old = msgspec.json.decode(msgspec.json.encode(api.put("httproutes", mk_route("a"))))
        api.put("httproutes", mk_route("a", hostnames=["new.example.com"]))
        api.say("httproutes", {"type": "DELETED", "object": old})
        api.put("httproutes", mk_route("b"))
        await until(lambda: "b" in memory.names)
        assert memory.names == ["a", "b"]
        assert memory.objects[Key("HTTPRoute", "shop", "a")].spec.hostnames == ("new.example.com",)  # type: ignore[attr-defined]


async def test_deletions_while_the_server_is_away_are_noticed() -> None:
    api = FakeApi()
    api.put("httproutes", mk_route("a"))
    api.put("httproutes", mk_route("b"))
    async with serving(api):
        port = int(api.url.rpartition(":")[2])
        stack = reflecting(api, "HTTPRoute")
        _reflector, memory = await stack.__aenter__()
        await until(lambda: memory.wholes)
    await until(lambda: memory.error is not None)
    assert memory.names == ["a", "b"] and memory.error and memory.error.reason == "Unreachable"
    api.delete("httproutes", "a", "shop")
    api.compact()
    async with serving(api, port):
        await until(lambda: memory.names == ["b"])
        assert memory.error is None and memory.ended["unreachable"] >= 2
        await stack.__aexit__(None, None, None)


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (401, "Unauthorized"), (404, "NotFound")])
async def test_a_refusal_is_reported_at_once_and_known_objects_stay(api: FakeApi, status: int, reason: str) -> None:
    api.put("httproutes", mk_route("a"))
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        api.fail("watch", "httproutes", "*", Refusal(status, reason))
        api.end("httproutes")
        await until(lambda: memory.error is not None)
        assert memory.error is not None and memory.error.status == status and memory.names == ["a"]
        api.fail("watch", "httproutes")
        await until(lambda: memory.error is None)


async def test_garbage_is_a_fault_like_any_other(api: FakeApi) -> None:
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        api.say("httproutes", {"type": 7, "object": {}})
        await until(lambda: memory.ended["reset"] == 1)
        api.put("httproutes", mk_route("a"))
        await until(lambda: memory.names == ["a"])


async def test_retry_after_is_honoured(api: FakeApi) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async with reflecting(api, "HTTPRoute", msgspec.structs.replace(FAST, sleep=sleep)) as (_, memory):
        await until(lambda: memory.wholes)
        api.fail("watch", "httproutes", Refusal(429, "TooManyRequests"))
        api.end("httproutes")
        await until(lambda: len(slept) == 2)
    assert slept[1] == 1.0


async def test_a_streaming_list_that_is_not_to_be_had_now_is_read_in_pages(api: FakeApi) -> None:
    """After a change of its CRD a server answers 429 to watches for many seconds, while lists work."""
    api.put("httproutes", mk_route("a"))
    api.fail("watch", "httproutes", "*", Refusal(429, "TooManyRequests", "storage is (re)initializing"))
    async with reflecting(api, "HTTPRoute") as (_, memory):
        await until(lambda: memory.wholes)
        assert memory.names == ["a"]
        api.faults.clear()


def test_backoff_doubles_with_jitter_up_to_a_limit() -> None:
    backoff = Backoff(0.2, 3.0, jitter=lambda: 1.0)
    assert [backoff.next() for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0]
    backoff.reset()
    assert backoff.next(at_least=1.0) == 1.0
    assert Backoff(0.2, 3.0, jitter=lambda: 0.0).next() == 0.1
