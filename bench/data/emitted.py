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
    """Returns the configuration of a running Gateway's Envoy as a bootstrap that needs no control plane.

    `run_dir` is the `LASTHOP_RUN_DIR` of a `lasthop run` with one Gateway; `admin` is the new Envoy's socket; `pair` is the
    certificate and the key of its listeners. All parts that affect a request are as emitted. Routes, endpoints and keys, which
    Envoy would request from the control plane, are inline.
    """
    (bootstrap,) = run_dir.rglob("bootstrap-*.json")
    dump = json.loads(asyncio.run(Admin(bootstrap.parent / "admin.sock").config_dump()))
    config = as_static(json.loads(bootstrap.read_text()), dump)
    config["admin"]["address"] = {"pipe": {"path": str(admin)}}
    # Sampled requests per million: the rate of `edge/proxy/observer.py` at 10,000 requests a second.
    config["layered_runtime"]["layers"][0]["static_layer"][SAMPLES_SHARE] = SAMPLED
    for listener in config["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            _with_pair(chain, *pair)
    return config


def as_static(bootstrap: Json, dump: Json) -> Json:
    parts: dict[str, Json] = {part["@type"].rpartition(".")[2]: part for part in dump["configs"]}
    tables = [config["route_config"] for config in parts["RoutesConfigDump"].get("dynamic_route_configs", ())]
    routes = {table["name"]: _untyped(table) for table in tables}
    endpoints = [config["endpoint_config"] for config in parts["EndpointsConfigDump"].get("dynamic_endpoint_configs", ())]
    assignments = {assignment["cluster_name"]: _untyped(assignment) for assignment in endpoints}
    clusters = [_untyped(config["cluster"]) for config in parts["ClustersConfigDump"]["dynamic_active_clusters"]]
    listeners = [config["active_state"]["listener"] for config in parts["ListenersConfigDump"]["dynamic_listeners"]]
    static = copy.deepcopy(bootstrap)
    del static["dynamic_resources"], static["node"]
    static["static_resources"] = {
        "listeners": [_with_routes(_untyped(listener), routes) for listener in listeners],
        "clusters": [_with_endpoints(cluster, assignments) for cluster in clusters],
    }
    return static


def connection_managers(config: Json) -> list[Json]:
    """Returns the HTTP connection managers of a bootstrap, to be changed in place."""
    chains = (chain for listener in config["static_resources"]["listeners"] for chain in listener["filter_chains"])
    filters = (filter["typed_config"] for chain in chains for filter in chain.get("filters", ()))
    return [filter for filter in filters if filter["@type"].endswith(".HttpConnectionManager")]


def _with_pair(chain: Json, certificate: Path, key: Path) -> None:
    common = chain.get("transport_socket", {}).get("typed_config", {}).get("common_tls_context", {})
    if common.pop("tls_certificate_sds_secret_configs", None):
        pair = {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
        common["tls_certificates"] = [pair]


def _untyped(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "@type"}


def _with_routes(listener: Json, routes: dict[str, Json]) -> Json:
    copied = copy.deepcopy(listener)
    for manager in connection_managers({"static_resources": {"listeners": [copied]}}):
        manager["route_config"] = routes[manager.pop("rds")["route_config_name"]]
    return copied


def _with_endpoints(cluster: Json, assignments: dict[str, Json]) -> Json:
    copied = copy.deepcopy(cluster)
    if "eds_cluster_config" in copied:
        name = copied.pop("eds_cluster_config")["service_name"]
        copied |= {"type": "STATIC", "load_assignment": {**assignments[name], "cluster_name": copied["name"]}}
        for locality in copied["load_assignment"].get("endpoints", ()):
            # Envoy shows the weight that it was not given as 0, which it would not take.
            locality.pop("load_balancing_weight", None)
    return copied
