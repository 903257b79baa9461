"""The request feed: bounded, and never delayed by a slow reader."""

from __future__ import annotations

import asyncio

import pytest

from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import KEPT, READERS, WAITING, RequestFeed, TooManyReaders
from lasthop.web.tap import wanted

ENTRY = AccessLogEntry(route="HTTPRoute shop/web", upstream_cluster="shop/gw/shop/api/443/auto", status=200)
FAILED = AccessLogEntry(route="HTTPRoute shop/web", status=503, why="it is down")


def test_a_slow_reader_misses_entries_and_gets_their_number() -> None:
    async def read() -> None:
        feed = RequestFeed()
        with feed.reading() as reader:
            for _ in range(WAITING + 7):
                feed.publish(ENTRY)
            entries, missed = await reader.read()
            assert (len(entries), missed) == (WAITING, 7)
            feed.publish(ENTRY)
            feed.skipped(3)
            assert await reader.read() == ([ENTRY], 3)
        assert not feed.open

    asyncio.run(read())


def test_readers_are_few_and_failures_that_are_kept_too() -> None:
    feed = RequestFeed()
    open_ones = [feed.reading() for _ in range(READERS)]
    for response in open_ones:
        response.__enter__()
    with pytest.raises(TooManyReaders), feed.reading():
        pass
    for number in range(2 * KEPT):
        feed.publish(AccessLogEntry(route="HTTPRoute shop/web", status=503, path=f"/{number}"))
        feed.publish(ENTRY)
    kept = feed.failed("HTTPRoute shop/web")
    assert len(kept) == KEPT and kept[0].path == f"/{2 * KEPT - 1}", "the latest first"
    assert feed.failed("HTTPRoute shop/other") == []


@pytest.mark.parametrize("route", ["HTTPRoute shop/web", "httproute/shop/web", "shop/web", "web", ""])
@pytest.mark.parametrize("backend", ["Service shop/api", "service/shop/api", "shop/api", "api", ""])
def test_routes_and_backends_are_named_as_people_name_them(route: str, backend: str) -> None:
    assert wanted(ENTRY, failed=False, route=route, backend=backend)


@pytest.mark.parametrize("route, backend", [("eb", ""), ("shop", ""), ("", "ap"), ("", "web"), ("grpcroute/shop/web", "")])
def test_others_are_left_out(route: str, backend: str) -> None:
    assert not wanted(ENTRY, failed=False, route=route, backend=backend)
    assert not wanted(ENTRY, failed=True, route="", backend="")
    assert wanted(FAILED, failed=True, route="", backend="")
