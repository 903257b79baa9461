"""The audit on the admin page and at its own address."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from lasthop.base.api.meta import Key
from lasthop.cli.render.audit_evidence import as_json
from lasthop.cli.render.audit_report import AuditReport, text
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan.cluster_metadata import identity
from lasthop.engine.plan.observation import EndpointSeen, HopSeen, LeafCertificate, ProxyReport
from lasthop.engine.plan.tls import BackendTLS
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import application
from lasthop.web.controller_view import ControllerView
from tests.certificates import Certificate
from tests.fake_api import FakeApi, client_of, serving
from tests.world import (
    ca_pem,
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
    assert [certificate["subject"] for certificate in audit["certificates"]] == ["soon CA"]


async def test_the_certificates_that_ports_of_a_backend_show_are_to_be_renewed_each_with_its_port() -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        runtime = ClusterRuntime(
            client, Site("lasthop", "x.svc", 1), identity="a", namespace="n", xds_listen="", own_address=""
        )
        ports = [{"name": f"p{port}", "port": port} for port in (443, 8443)]
        objects = (
            mk_class(),
            mk_gateway("a/g"),
            mk_service("a/s", ports=ports),
            mk_config_map("a/ca", ca_pem("good")),
            mk_policy("a/p", "s", "s.example", ["ca"]),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}, {"name": "s", "port": 8443}]),
        )
        runtime.controller.take(Batch(keyed(*objects)))
        now = time.time()
        runtime.controller.engine.advance(now)
        hops = {}
        for port in (443, 8443):
            leaf = LeafCertificate(f"CN=leaf <b>{port}</b>", "CN=ca", ("s.example",), now - 1, now + 5.1 * 86400)
            hop = Hop(Key("Gateway", "a", "g"), Key("Service", "a", "s"), port, Protocol.AUTO)
            tls = hop_tls(runtime.controller.engine.graph, *hop)
            assert isinstance(tls, BackendTLS)
            seen = EndpointSeen(
                f"10.0.0.1:{port}", last_success=now, certificate=leaf, tls_version="TLSv1.3", config=identity(tls)
            )
            hops[hop] = HopSeen(1, last_success=now, endpoints=(seen,))
        runtime.controller.seen(ProxyReport(Key("Gateway", "a", "g"), "pod", now, now, hops))
        view = ControllerView(runtime)
        async with TestClient(TestServer(application(view))) as browser:
            page = await (await browser.get("/")).text()
            metrics = await (await browser.get("/metrics")).text()
        audit = AuditReport(await view.audit(), "the cluster", "https://api.example", now, 30)
    for port in (443, 8443):
        shown = f"<b><bdi>CN=leaf &lt;b&gt;{port}&lt;/b&gt;</bdi></b>"
        place = f"certificate that a backend shows in <bdi>Service a/s:{port}</bdi>"
        assert re.search(rf">5 days left</span> {re.escape(shown)} .*{re.escape(place)}", page)
        assert f"certificate that a backend shows, in Service a/s:{port}, until" in text(audit)
        backend = f'kind="Service",namespace="a",port="{port}",service="s"}}'
        assert f'lasthop_backend_certificate_expiry_timestamp_seconds{{gateway="a/g",{backend}' in metrics
        assert f'lasthop_backend_health{{gateway="a/g",health="working",{backend} 1.0' in metrics
    assert [certificate["port"] for certificate in json.loads(as_json(audit))["certificates"]] == [443, 8443]
