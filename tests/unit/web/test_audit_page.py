"""The audit on the admin page and at its own address."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from lasthop.cluster import ClusterRuntime
from lasthop.infra.kubernetes.desired import Site
from lasthop.sources.source import Batch
from lasthop.web.app import application
from lasthop.web.controller_view import ControllerView
from tests.certificates import Certificate
from tests.fake_api import FakeApi, client_of, serving
from tests.world import (
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    mk_waiver,
    own_ref,
    profile_ref,
)

NOW = datetime.now(UTC)
SOON = Certificate("soon CA", ca=True, valid=(NOW - timedelta(days=1), NOW + timedelta(days=9, hours=1)))


async def test_the_page_shows_what_is_waived_and_which_certificates_are_to_be_renewed() -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        runtime = ClusterRuntime(
            client, Site("lasthop", "x.svc", 1), identity="a", namespace="n", xds_listen="", own_address=""
        )
        runtime.controller.take(
            Batch(
                keyed(
                    mk_class(),
                    mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
                    mk_profile("a/f", backendTLS={"waivers": "Allow"}),
                    mk_service("a/s"),
                    mk_service("a/t"),
                    mk_route("a/r", "a/g", [{"name": "s", "port": 443}, {"name": "t", "port": 443}]),
                    mk_policy("a/p", "s", "api.example", [own_ref("VerificationWaiver", "w")]),
                    mk_policy("a/q", "t", "api.example", ["c"]),
                    mk_config_map("a/c", SOON.pem),
                    mk_waiver("a/w", "All"),
                )
            )
        )
        runtime.controller.engine.advance(time.time())
        view = ControllerView(runtime)
        async with TestClient(TestServer(application(view))) as browser:
            page = await (await browser.get("/")).text()
            audit: dict[str, Any] = json.loads(await (await browser.get("/api/audit")).text())
    rows = dict(re.findall(r'<a id="h-\w+" class="row ([\w-]+)".*?<b class="cut" title="([^"]+)"', page, re.DOTALL))
    assert rows == {"waived": "a/s:443", "not-tried-yet": "a/t:443"}, "nothing is called verified before it has been tried"
    assert re.search(r'expiry soon".*>9 days left</span> <b><bdi>soon CA</bdi></b>', page)
    assert "CA of backends in <bdi>ConfigMap a/c</bdi>, for <bdi>BackendTLSPolicy a/q</bdi>" in page
    assert {(hop["service"], hop["manner"]) for hop in audit["hops"]} == {("a/s", "waived"), ("a/t", "verified")}
    assert [each["subject"] for each in audit["certificates"]] == ["soon CA"]
