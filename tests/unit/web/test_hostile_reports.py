"""For any report of a proxy, every view of it responds."""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from lasthop.base.api.meta import Key
from lasthop.edge.observe import observations
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.observation import LATENCY_BOUNDS, EndpointSeen, HopSeen, LeafCertificate, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import application
from lasthop.web.controller_view import ControllerView
from tests.fake_api import FakeApi, client_of, serving
from tests.logged import captured
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service

WEB = Key("Gateway", "a", "g")
ROUTE = Key("HTTPRoute", "a", "r")
HOP = Hop(WEB, Key("Service", "a", "s"), 443, Protocol.AUTO)
LEAST, MOST = 0, 2**40
FIRST, LAST = 0.0, 2.0**33
OLDEST, LATEST = -62_135_596_800.0, 253_402_300_799.0


def report(count: int, moment: float, date: float, at: float, in_a_row: int) -> ProxyReport:
    leaf = LeafCertificate("CN=a", "CN=b", ("x",), date, date)
    endpoint = EndpointSeen("10.0.0.1:1", count, "no", True, in_a_row, moment, moment, moment, leaf, "v", "c", moment)
    traffic = Traffic((count,) * 5, tuple((bound, count) for bound in LATENCY_BOUNDS), count)
    seen = HopSeen(count, count, count, {"kind": count}, moment, moment, (endpoint,), traffic)
    return ProxyReport(WEB, "p", moment, at, {HOP: seen}, {ROUTE: traffic})


REPORTS = [
    report(count, moment, date, at, in_a_row)
    for count in (LEAST, MOST)
    for moment in (FIRST, LAST)
    for date in (OLDEST, LATEST)
    for at in (FIRST, LAST, time.time())
    for in_a_row in (LEAST, MOST)
]
PATHS = ("/", "/live", "/metrics", "/api/traffic", "/api/audit", "/api/findings", "/api/objects")


@pytest.mark.parametrize("first", [REPORTS[0], REPORTS[-1]])
async def test_the_page_and_the_api_respond_for_any_report(first: ProxyReport) -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        objects = (
            *(mk_class(), mk_gateway("a/g"), mk_service("a/s"), mk_config_map("a/ca", ca_pem("good"))),
            *(mk_policy("a/p", "s", "s.example", ["ca"]), mk_route("a/r", "a/g", [{"name": "s", "port": 443}])),
        )
        runtime.controller.take(Batch(keyed(*objects)))
        controller = runtime.controller
        controller.engine.advance(time.time())
        async with TestClient(TestServer(application(ControllerView(runtime)))) as browser:
            page = await (await browser.get("/")).text()
            detail = "/detail?hop=" + page.partition('id="h-')[2].partition('"')[0]
            for hostile in REPORTS:
                for heard in (first, hostile):
                    assert msgspec.msgpack.decode(msgspec.msgpack.encode(heard), type=ProxyReport) == heard, "it is accepted"
                    controller.seen(heard)
                controller.settle()
                assert controller.observations.proxies(WEB)
                statuses = {path: (await browser.get(path)).status for path in (*PATHS, detail)}
                assert set(statuses.values()) <= {200, 204}, (statuses, hostile)


async def test_a_proxy_too_many_is_counted_and_logged_once_and_what_goes_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observations, "MAX_PROXIES", 1)
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        controller = runtime.controller
        controller.take(Batch(keyed(mk_class(), mk_gateway("a/g"))))
        with captured() as logged:
            for proxy in ("p", "q", "r"):
                controller.seen(msgspec.structs.replace(REPORTS[0], proxy=proxy))
        assert controller.exceeded[WEB] == 2
        assert [line["gateway"] for line in logged if "exceeds the budget" in line["event"]] == ["a/g"]
        assert {proxy for _, proxy in controller.totals._last} == {"p"}
        controller.observations.step(time.time() + observations.EXPIRES)
        controller.tick()
        assert not controller.totals._last
        controller.take(Batch({WEB: None}))
        controller.settle()
        assert WEB not in controller.exceeded and WEB not in controller._complain_at


async def test_totals_stay_numbers_that_a_document_can_hold() -> None:
    """A sum over as many proxies as a Gateway may have, each with the largest count."""
    total: Any = sum((report(MOST, LAST, LATEST, LAST, 0).routes[ROUTE] for _ in range(200)), Traffic())
    assert msgspec.json.decode(msgspec.json.encode(total)) and math.isfinite(total.latency_sum)
