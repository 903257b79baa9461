"""For any XTelemetryPolicy, Envoy accepts the listener or nothing is traced: a rejected policy would close it for all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from lasthop.base.api.kinds import decode
from lasthop.base.api.meta import Key
from lasthop.edge.proxy.binary import find_envoy
from lasthop.engine.outputs.envoy.encode import encode, packed, socket_address
from lasthop.engine.outputs.envoy.listeners import HCM
from lasthop.engine.outputs.envoy.tracing import trace
from lasthop.engine.plan.telemetry import TracingPlan
from lasthop.engine.resolve.gateways.telemetry import tracing
from tests.fuzz.objects import NAMES, TENANT, Tenant
from tests.snapshot import settled
from tests.world import keyed, mk_class, mk_gateway, mk_service

POLICIES = 400
GATEWAY = Key("Gateway", TENANT, "gw")


def traced(seed: int) -> TracingPlan | None:
    """What comes of a random policy for a Gateway."""
    document = Tenant(Random(seed)).telemetry_policy("traces")
    document["spec"]["targetRefs"][0] |= {"name": GATEWAY.name}
    services = (mk_service(f"{TENANT}/{name}") for name in NAMES)
    engine, _ = settled(keyed(mk_class(), mk_gateway(GATEWAY.path), *services, decode("XTelemetryPolicy", document)))
    assert engine.graph.crashes == {}, f"policy {seed}"
    return tracing(engine.graph, GATEWAY)


def test_envoy_takes_every_policy_that_is_not_refused(tmp_path: Path) -> None:
    accepted = [wanted for wanted in map(traced, range(POLICIES)) if wanted]
    assert POLICIES / 10 < len(accepted) < POLICIES
    bootstrap = bootstrap_pb2.Bootstrap()
    for number, wanted in enumerate(accepted):
        router = hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=packed(router_pb2.Router()))
        routes = route_pb2.RouteConfiguration(name="none")
        manager = hcm_pb2.HttpConnectionManager(stat_prefix="http", route_config=routes, http_filters=[router])
        trace(manager, wanted)
        listener = bootstrap.static_resources.listeners.add(name=str(number))
        listener.address.CopyFrom(socket_address("127.0.0.1", 1 + number))
        listener.filter_chains.add().filters.add(name=HCM).typed_config.CopyFrom(packed(manager))
    path = tmp_path / "bootstrap.pb"
    path.write_bytes(encode(bootstrap))
    command = [str(find_envoy().path), "--mode", "validate", "-c", str(path), "--log-level", "error"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
