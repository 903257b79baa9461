"""/metrics as Prometheus reads it."""

from __future__ import annotations

import re

from lasthop.api.meta import Key
from lasthop.cluster import ClusterRuntime
from lasthop.infra.kubernetes.desired import Site
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource
from lasthop.sources.source import Batch
from lasthop.web.controller_view import ControllerView
from lasthop.web.metrics import metrics
from lasthop.xds.session import Acked
from tests.fake_api import FakeApi, client_of, serving
from tests.world import keyed, mk_class, mk_gateway, mk_route, mk_service

GATEWAY = Key("Gateway", "a", "gw")


def sample(text: str, name: str) -> float:
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found)


async def test_metrics_of_a_cluster_tell_what_an_operator_wants_to_know() -> None:
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
            found = {name: cache.get(type_url, name) for name in cache.names(type_url)}
            held = {name: resource for name, resource in found.items() if isinstance(resource, Resource)}
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
    assert sample(text, 'lasthop_events_total{result="told"}') == 0
    assert sample(text, 'lasthop_time_to_programmed_seconds_bucket{le="0.1"}') == 0
    assert sample(text, 'lasthop_time_to_programmed_seconds_bucket{le="0.25"}') == 1
    assert sample(text, "lasthop_time_to_programmed_seconds_count") == 1
