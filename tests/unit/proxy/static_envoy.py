"""Runs a real Envoy with static clusters, for tests of its output."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lasthop.edge.proxy import launch
from lasthop.edge.proxy.binary import find_envoy
from lasthop.edge.proxy.directory import ProxyDirectory
from lasthop.edge.proxy.entry import AccessLogEntry, parse
from lasthop.edge.proxy.handle import EnvoyHandle
from tests.backends import until
from tests.ports import free_port

TYPE = "type.googleapis.com/envoy.extensions."

FIELDS = {
    "time": "%START_TIME%",
    "authority": "%REQ(:AUTHORITY)%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(:PATH)%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "upstream_cluster": "%UPSTREAM_CLUSTER%",
    "upstream_host": "%UPSTREAM_HOST%",
    "tls_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "policy": "%METADATA(CLUSTER:lasthop:policy)%",
    "wants": "%METADATA(CLUSTER:lasthop:wants)%",
    "shows": "%METADATA(CLUSTER:lasthop:shows)%",
    "duration_ms": "%DURATION%",
}


def tls_cluster(name: str, port: int | None, *, ca: str, wants: str, common: dict[str, Any] | None = None) -> dict[str, Any]:
    validation = {
        "trusted_ca": {"inline_string": ca},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": wants}}],
    }
    context: dict[str, Any] = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
        **(common or {}),
    }
    context["validation_context"] = validation | context.get("validation_context", {})
    shows = {"shows": "Secret shop/own"} if "tls_certificates" in context else {}
    return cluster(name, port) | {
        "metadata": {"filter_metadata": {"lasthop": {"policy": "shop/api", "wants": wants, **shows}}},
        "transport_socket": {
            "name": "tls",
            "typed_config": {
                "@type": TYPE + "transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": wants,
                "common_tls_context": context,
            },
        },
    }


def cluster(name: str, port: int | None) -> dict[str, Any]:
    """Without a port: without endpoints."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}] if port else []
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
    }


class StaticEnvoy:
    """Requests for `/NAME` go to the cluster of that name, which need not be there."""

    def __init__(self, folder: Path, port: int, pid: int) -> None:
        self.admin_socket = folder / "admin.sock"
        self.port = port
        self.pid = pid
        self._log = folder / "access.log"

    def get(self, name: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", headers={"x-to": name})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def entry(self, name: str) -> AccessLogEntry:
        """Returns the entry of the access log for the request for `/NAME`."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self._log.read_bytes().splitlines() if self._log.exists() else ():
                entry = parse(line)
                if entry is not None and entry.path == f"/{name}":
                    return entry
            time.sleep(0.05)
        raise AssertionError(f"no access log line for /{name}")


@contextlib.contextmanager
def static_envoy(folder: Path, clusters: list[dict[str, Any]]) -> Iterator[StaticEnvoy]:
    port = free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_config(folder, port, clusters)))
    command = [str(find_envoy().path), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
    running = launch.start([*command, "--file-flush-interval-msec", "50"], ProxyDirectory(folder))
    try:
        _wait_for(port, running, folder / "envoy.log")
        yield StaticEnvoy(folder, port, running.pid)
    finally:
        running.signal(signal.SIGTERM)
        until(lambda: not running.alive, "Envoy ends")
        running.exit_code()
        running.close()


def _wait_for(port: int, running: EnvoyHandle, log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and running.alive:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/up", timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"Envoy did not come up: {log.read_text()}")


def _config(folder: Path, port: int, clusters: list[dict[str, Any]]) -> dict[str, Any]:
    to_named = {
        "cluster_header": "x-to",
        "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
    }
    manager = {
        "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"path": "/-/up"}, "direct_response": {"status": 204}},
                        {"match": {"path": "/refused"}, "direct_response": {"status": 500}},
                        {"match": {"prefix": "/"}, "route": to_named},
                    ],
                }
            ]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}}],
        "access_log": [
            {
                "name": "file",
                "typed_config": {
                    "@type": TYPE + "access_loggers.file.v3.FileAccessLog",
                    "path": str(folder / "access.log"),
                    "log_format": {"json_format": FIELDS},
                },
            }
        ],
    }
    listener = {
        "name": "test",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {
        "admin": {"address": {"pipe": {"path": str(folder / "admin.sock"), "mode": 0o600}}},
        "static_resources": {"clusters": clusters, "listeners": [listener]},
    }
