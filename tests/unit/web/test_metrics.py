"""/metrics as Prometheus reads it."""

from __future__ import annotations

import math
import re

from lasthop.base.api.meta import Key
from lasthop.edge.observe.totals import HopTotals
from lasthop.edge.sources.source import Batch
from lasthop.edge.xds.session import Acked
from lasthop.engine.outputs.audit.certificates import CertificateReport, Role
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource
from lasthop.engine.plan.observation import Health, Traffic
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.controller_view import ControllerView
from lasthop.web.metrics import certificates_metric, metrics, verification_metrics
from lasthop.web.traffic_metrics import HopRow, traffic_metrics
from tests.fake_api import FakeApi, client_of, serving
from tests.world import keyed, mk_class, mk_gateway, mk_route, mk_service

GATEWAY = Key("Gateway", "a", "gw")


def sample(text: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(value)


async def test_metrics_of_a_cluster_cover_the_questions_of_an_operator() -> None:
    async with serving(FakeApi()) as api, client_of(api) as client:
        runtime = ClusterRuntime(
            client, Site("lasthop", "x.svc", 1), identity="a", namespace="n", xds_listen="", own_address=""
        )
        route = mk_route("a/r", GATEWAY.path, [{"name": "none", "port": 443}], ["one.example"])
        controller = runtime.controller
        controller.take(Batch(keyed(mk_class(), mk_gateway(GATEWAY.path), mk_service("a/api"), route)))
        controller.connected(GATEWAY)
        cache = controller.fleet.gateways[GATEWAY].cache
        for type_url in (CLUSTER, LISTENER, ROUTES):
            resources = {name: cache.get(type_url, name) for name in cache.names(type_url)}
            held = {name: resource for name, resource in resources.items() if isinstance(resource, Resource)}
            controller.acked(GATEWAY, Acked(type_url, held))
        runtime.updater.writer.counts.labels("writes").inc(3)
        runtime.updater.writer.counts.labels("conflicts").inc()
        runtime.source.restarts.labels("HTTPRoute", "410").inc(2)
        controller.time_to_programmed.observe(0.2)
        text = (await metrics(ControllerView(runtime))).decode()

    assert sample(text, 'lasthop_objects{kind="HTTPRoute"}') == 1
    assert sample(text, 'lasthop_findings{reason="BackendNotFound",severity="error"}') == 1
    assert sample(text, 'lasthop_gateway_programmed{gateway="a/gw"}') == 1
    assert sample(text, 'lasthop_xds_clients{gateway="a/gw"}') == 0, "none by gRPC"
    assert sample(text, "lasthop_leader") == 0
    assert sample(text, 'lasthop_status_writes_total{result="writes"}') == 3
    assert sample(text, 'lasthop_status_writes_total{result="conflicts"}') == 1
    assert sample(text, "lasthop_status_pending") == 0, "it does not lead"
    assert sample(text, 'lasthop_watch_restarts_total{kind="HTTPRoute",reason="410"}') == 2
    assert sample(text, 'lasthop_events_total{result="recorded"}') == 0
    assert sample(text, 'lasthop_time_to_programmed_seconds_bucket{le="0.1"}') == 0
    assert sample(text, 'lasthop_time_to_programmed_seconds_bucket{le="0.25"}') == 1
    assert sample(text, "lasthop_time_to_programmed_seconds_count") == 1


def certificate(name: str, subject: str, not_after: float) -> CertificateReport:
    return CertificateReport(not_after, Role.ANCHOR, Key("ConfigMap", "a", name), subject)


def test_a_bundle_of_hundreds_has_few_series_and_no_text_of_any_length() -> None:
    many = [certificate("many", f"CN={n:03}", 1000.0 + n) for n in range(300)]
    metric = certificates_metric([*many, certificate("odd", '\n"' + "x" * 5000, 5.0), certificate("odd", "CN=a", 6.0)])
    names = [sample.labels["name"] for sample in metric.samples]
    assert names.count("many") == 10 and names.count("odd") == 2
    assert {sample.value for sample in metric.samples if sample.labels["name"] == "many"} == {1000.0 + n for n in range(10)}
    assert all(len(sample.labels["subject"]) <= 120 for sample in metric.samples)


def test_protocols_of_a_port_are_one_series_with_the_worst_health() -> None:
    gateway, service = Key("Gateway", "a", "g"), Key("Service", "a", "s")
    auto, upgrade = (Hop(gateway, service, 443, protocol) for protocol in (Protocol.AUTO, Protocol.H1_UPGRADE))
    rows = [HopRow(auto, 2), HopRow(upgrade, 1)]
    tls, udp = (
        HopReport(
            *(gateway, service, 443, strength, ""),
            outside=outside,
            observed=Observed(health, 0.0, 0.0, 0.0, 0, 0, 0, (), (), ()),
        )
        for strength, outside, health in (
            (Strength.VERIFIED, None, Health.WORKING),
            (Strength.PLAINTEXT, Protocol.UDP, Health.FAILING),
        )
    )
    traffic = Traffic((0, 3, 0, 0, 1), ((0.1, 3), (math.inf, 4)))
    totals = dict.fromkeys((auto, upgrade), HopTotals(5, {"fail_verify_san": 1, "fail_verify_new": 2}, 3, traffic))
    by_metric = {
        family.name: family.samples
        for family in traffic_metrics(rows, [tls, udp], totals, {(gateway, Key("HTTPRoute", "a", "r")): traffic})
    }
    (health,) = by_metric["lasthop_backend_health"]
    assert health.labels["health"] == "failing"
    outcomes = {sample.labels["outcome"]: sample.value for sample in by_metric["lasthop_backend_tls_handshakes"]}
    assert outcomes == {"success": 10, "wrong_name": 2, "handshake_error": 4}
    assert {sample.labels["code"]: sample.value for sample in by_metric["lasthop_backend_requests"]} == {"2xx": 6, "5xx": 2}
    buckets = {
        s.labels["le"]: s.value for s in by_metric["lasthop_route_request_duration_seconds"] if s.name.endswith("_bucket")
    }
    assert buckets == {"0.1": 3, "+Inf": 4}
    assert [sample.value for sample in by_metric["lasthop_backend_requests_active"]] == [3]


def test_each_strength_has_the_label_that_alerts_are_written_for() -> None:
    gateway = Key("Gateway", "a", "g")
    hops = [HopReport(gateway, Key("Service", "a", strength.name.lower()), 443, strength, "") for strength in Strength]
    hops.append(HopReport(gateway, Key("Service", "a", "closed"), 443, Strength.VERIFIED, "", refused=True))
    hops.append(HopReport(gateway, Key("Service", "a", "raw"), 443, Strength.PLAINTEXT, "", outside=Protocol.PASSTHROUGH))
    metric = next(iter(verification_metrics(hops, [])))
    expected = {strength.name.lower(): strength.label for strength in Strength} | {
        "closed": "FailingClosed",
        "raw": "Passthrough",
    }
    assert {sample.labels["service"]: sample.labels["mode"] for sample in metric.samples} == expected
