"""The readers of the admin address: responses that name objects are for this machine, by its own name."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import application
from lasthop.web.controller_view import ControllerView
from tests.fake_api import FakeApi, client_of, serving

PROXIED = {"x-forwarded-for": "192.0.2.1"}
PRIVATE = (
    *("/", "/live", "/detail", "/detail/state", "/static/page.js"),
    *("/api/objects", "/api/findings", "/api/not-applied", "/api/explain", "/api/audit", "/api/readiness", "/api/about"),
)


@pytest.mark.parametrize(
    "headers, private, metrics",
    [
        ({}, {200, 204, 404}, 200),
        ({"host": "localhost:1"}, {200, 204, 404}, 200),
        ({"host": "evil.example"}, {421}, 421),
        (PROXIED, {421}, 200),
        ({"x-envoy-external-address": "192.0.2.1"}, {421}, 200),
        ({"Via": "1.1 proxy"}, {421}, 200),
        ({"Forwarded": "for=192.0.2.1"}, {421}, 200),
        ({"host": "evil.example", **PROXIED}, {421}, 421),
    ],
)
async def test_responses_that_name_objects_are_for_this_machine(
    headers: dict[str, str], private: set[int], metrics: int
) -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        view = ControllerView(runtime)
        async with TestClient(TestServer(application(view), host="127.0.0.1")) as browser:

            async def status(path: str) -> int:
                async with browser.get(path, headers=headers) as response:
                    return response.status

            assert {await status(path) for path in PRIVATE} <= private
            assert await status("/metrics") == metrics
            assert await status("/healthz") == 200
