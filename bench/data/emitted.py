"""Writes Lasthop's configuration as one file that Envoy can start with, for measurements that a running `lasthop run` does not
allow, such as the price of a single setting."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.observer import ALL, SAMPLES
from lasthop.engine.outputs.envoy.access_log import SAMPLES_SHARE

Json = dict[str, Any]
SAMPLED = round(ALL * SAMPLES / 10_000)


def emitted(run_dir: Path, admin: Path, pair: tuple[Path, Path]) -> Json:
    """Returns what the Envoy of a running Gateway is configured with, as a bootstrap that needs no control plane.

    `run_dir` is the `LASTHOP_RUN_DIR` of a `lasthop run` with one Gateway; `admin` is the new Envoy's socket; `pair` is the
    certificate and the key of its listeners. All parts that affect a request are as emitted. Routes, endpoints and keys, which
    Envoy would request from the control plane, are inline.
    """
    (bootstrap,) = run_dir.rglob("bootstrap-*.json")
    dump = json.loads(asyncio.run(Admin(bootstrap.parent / "admin.sock").config_dump()))
    found = as_static(json.loads(bootstrap.read_text()), dump)
    found["admin"]["address"] = {"pipe": {"path": str(admin)}}
    # Sampled requests per million: the rate of `edge/proxy/observer.py` at 10,000 requests a second.
    found["layered_runtime"]["layers"][0]["static_layer"][SAMPLES_SHARE] = SAMPLED
    for listener in found["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            _with_pair(chain, *pair)
    return found


def as_static(bootstrap: Json, dump: Json) -> Json:
    parts: dict[str, Json] = {part["@type"].rpartition(".")[2]: part for part in dump["configs"]}
    tables = [each["route_config"] for each in parts["RoutesConfigDump"].get("dynamic_route_configs", ())]
    routes = {table["name"]: _untyped(table) for table in tables}
    endpoints = [each["endpoint_config"] for each in parts["EndpointsConfigDump"].get("dynamic_endpoint_configs", ())]
    assignments = {each["cluster_name"]: _untyped(each) for each in endpoints}
    clusters = [_untyped(each["cluster"]) for each in parts["ClustersConfigDump"]["dynamic_active_clusters"]]
    listeners = [each["active_state"]["listener"] for each in parts["ListenersConfigDump"]["dynamic_listeners"]]
    found = copy.deepcopy(bootstrap)
    del found["dynamic_resources"], found["node"]
    found["static_resources"] = {
        "listeners": [_with_routes(_untyped(each), routes) for each in listeners],
        "clusters": [_with_endpoints(each, assignments) for each in clusters],
    }
    return found


def connection_managers(config: Json) -> list[Json]:
    """Returns the HTTP connection managers of a bootstrap, to be changed in place."""
    chains = (chain for listener in config["static_resources"]["listeners"] for chain in listener["filter_chains"])
    filters = (filter["typed_config"] for chain in chains for filter in chain.get("filters", ()))
    return [each for each in filters if each["@type"].endswith(".HttpConnectionManager")]


def _with_pair(chain: Json, certificate: Path, key: Path) -> None:
    common = chain.get("transport_socket", {}).get("typed_config", {}).get("common_tls_context", {})
    if common.pop("tls_certificate_sds_secret_configs", None):
        pair = {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
        common["tls_certificates"] = [pair]


def _untyped(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "@type"}


def _with_routes(listener: Json, routes: dict[str, Json]) -> Json:
    found = copy.deepcopy(listener)
    for manager in connection_managers({"static_resources": {"listeners": [found]}}):
        manager["route_config"] = routes[manager.pop("rds")["route_config_name"]]
    return found


def _with_endpoints(cluster: Json, assignments: dict[str, Json]) -> Json:
    found = copy.deepcopy(cluster)
    if "eds_cluster_config" in found:
        name = found.pop("eds_cluster_config")["service_name"]
        found |= {"type": "STATIC", "load_assignment": {**assignments[name], "cluster_name": found["name"]}}
        for locality in found["load_assignment"].get("endpoints", ()):
            # Envoy shows the weight that it was not given as 0, which it would not take.
            locality.pop("load_balancing_weight", None)
    return found
