"""The data plane's bench: its evaluation of figures, and the validity of the compared configurations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.data.counted import figures
from bench.data.emitted import as_static, connection_managers
from bench.data.envoy_gateway import envoy_gateway
from bench.data.places import BACKENDS, DOMAIN, Places
from bench.data.report import figure
from bench.data.rows import COUNTED, ENVOY_GATEWAY, LASTHOP, NGINX, ROWS, TUNED, TUNED_SAFE
from bench.data.sides import envoy_command
from bench.data.tuned import tuned
from examples.quickstart.certificates import Issued
from tests.ports import free_port

ROUNDS = 24


def test_cpu_is_shown_by_its_median_and_has_no_goal() -> None:
    noisy = figure(ROWS["1k-h1"], ENVOY_GATEWAY, [70.0, 110.0] * (ROUNDS // 2), [100.0] * ROUNDS)
    assert (noisy.ratio, noisy.low, noisy.high) == (0.9, 0.7, 1.1)
    assert (noisy.shown().ratio, noisy.shown().goal, noisy.shown().met) == (0.9, "", None)


def test_instructions_are_judged_beside_each_peer_that_a_goal_names() -> None:
    counts = {LASTHOP: 148_000.0, TUNED: 133_000.0, TUNED_SAFE: 147_000.0, ENVOY_GATEWAY: 160_000.0}
    rows = {"1k-h1": ROWS["1k-h1"]}
    met = {
        compared.peer: compared.met for compared in figures(rows, {side: {"1k-h1": count} for side, count in counts.items()})
    }
    assert met == {"": False, TUNED: None, TUNED_SAFE: True, ENVOY_GATEWAY: False}


def test_every_row_of_the_data_plane_has_a_goal() -> None:
    costs = {side: dict.fromkeys(ROWS, 1.0) for side in COUNTED}
    judged = {compared.what for compared in figures(ROWS, costs) if compared.met is not None}
    assert judged == {"1 KiB request", *(f"{row.name}: instructions" for row in ROWS.values())}


def test_a_round_is_compared_with_the_same_round_of_the_other() -> None:
    """So a machine that is slow for a while changes nothing."""
    slow = [1.0] * 12 + [5.0] * 12
    assert figure(ROWS["1m"], NGINX, [2 * count for count in slow], slow).ratio == 2.0


def places(home: Path) -> Places:
    ca = Issued("bench CA")
    (home / "ca.crt").write_bytes(ca.pem)
    Issued(f"*.{DOMAIN}", ca).write(home, "server")
    return Places(home, Path("traffic"), dict.fromkeys(BACKENDS.values(), free_port()))


@pytest.mark.parametrize("name", ["tuned", "with statistics", "with protections", "Envoy Gateway's"])
def test_envoy_accepts_the_other_configurations(name: str, tmp_path: Path) -> None:
    ports = {port: free_port() for port in ("http", "grpc", "stream")}
    made: dict[str, Any] = {
        "tuned": lambda there: tuned(there, ports, stats=False),
        "with statistics": lambda there: tuned(there, ports, stats=True),
        "with protections": lambda there: tuned(there, ports, stats=True, protected=True),
        "Envoy Gateway's": lambda there: envoy_gateway(there, ports),
    }
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(made[name](places(tmp_path))))
    command = [*envoy_command(file, tmp_path / "base"), "--mode", "validate"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_configuration_from_the_control_plane_fits_into_one_file() -> None:
    manager = {"@type": "x.HttpConnectionManager", "rds": {"route_config_name": "shop/web/80"}}
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    assignment = {"cluster_name": "api@1", "endpoints": [{"lb_endpoints": [], "load_balancing_weight": 0}]}
    dump = {
        "configs": [
            {
                "@type": "x.ListenersConfigDump",
                "dynamic_listeners": [{"active_state": {"listener": {"filter_chains": [chain]}}}],
            },
            {
                "@type": "x.RoutesConfigDump",
                "dynamic_route_configs": [{"route_config": {"@type": "x", "name": "shop/web/80"}}],
            },
            {"@type": "x.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": _cluster()}]},
            {"@type": "x.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": assignment}]},
        ]
    }
    config = as_static({"node": {}, "dynamic_resources": {}, "admin": {}}, dump)
    (cluster,) = config["static_resources"]["clusters"]
    assert cluster == {
        "name": "api",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "api", "endpoints": [{"lb_endpoints": []}]},
    }
    (served,) = connection_managers(config)
    assert served["route_config"] == {"name": "shop/web/80"} and "rds" not in served
    assert "dynamic_resources" not in config


def _cluster() -> dict[str, Any]:
    return {"@type": "x", "name": "api", "type": "EDS", "eds_cluster_config": {"service_name": "api@1"}}
