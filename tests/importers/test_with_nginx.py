"""Presents the same wrong certificates to a real nginx, configured like ingress-nginx, and to Lasthop with the imported
Ingresses: the report describes the behaviour before and after correctly.

nginx is not run as a service.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.backends import Backend, backend, until
from tests.importers.end_to_end import CERTIFICATES, CN_ONLY, GOOD, NAME, imported, status, surroundings
from tests.ports import free_port
from tests.proxy.certs import CA
from tests.proxy.lasthop import Lasthop
from tools import programs

pytestmark = pytest.mark.program("nginx")
PREFIX = "nginx.ingress.kubernetes.io/"
Json = dict[str, Any]
SECRET = {"proxy-ssl-secret": "shop/ca"}
ROWS: dict[str, dict[str, str]] = {
    "verified": {**SECRET, "proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "off": {**SECRET, "proxy-ssl-verify": "off", "proxy-ssl-name": NAME},
    "no-secret": {"proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "no-ca": {"proxy-ssl-secret": "shop/pair", "proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "no-name": {**SECRET, "proxy-ssl-verify": "on"},
}
ACCEPTED_BEFORE = {"name": {GOOD, CN_ONLY}, "unverified": set(CERTIFICATES), "broken": set[str]()}
"""By the level that the report gives."""


def _nginx_conf(root: Path, ports: dict[str, int], upstream: int) -> str:
    """Writes what the controller's template does: `proxy_ssl_*` only beside a CA, and one upstream for all."""
    servers = []
    for row, port in ports.items():
        asked = ROWS[row]
        lines = [f"listen 127.0.0.1:{port};"]
        if asked.get("proxy-ssl-secret") == SECRET["proxy-ssl-secret"]:
            lines += [f"proxy_ssl_trusted_certificate {root}/ca.pem;", "proxy_ssl_verify_depth 1;"]
            lines += [f"proxy_ssl_verify {asked['proxy-ssl-verify']};", "proxy_ssl_protocols TLSv1.2;"]
            lines += [f"proxy_ssl_name {asked['proxy-ssl-name']};"] if "proxy-ssl-name" in asked else []
        lines.append("location / { proxy_pass https://upstream_balancer; }")
        servers.append(f"server {{ {' '.join(lines)} }}")
    paths = " ".join(f"{kind}_temp_path {root}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""
daemon off; master_process off; pid {root}/pid; error_log {root}/error.log; events {{}}
http {{ access_log off; proxy_ssl_session_reuse off; {paths}
upstream upstream_balancer {{ server 127.0.0.1:{upstream}; }}
{" ".join(servers)} }}
"""


@contextlib.contextmanager
def _nginx(root: Path, upstream: int) -> Iterator[dict[str, int]]:
    ports = {row: free_port() for row in ROWS}
    (root / "ca.pem").write_text(CA.pem)
    (root / "nginx.conf").write_text(_nginx_conf(root, ports, upstream))
    command = [programs.path("nginx"), "-e", str(root / "error.log"), "-p", str(root), "-c", str(root / "nginx.conf")]
    process = subprocess.Popen(command)
    try:
        until(lambda: all(status(port, row) for row, port in ports.items()), "nginx serves")
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def _ingress(row: str) -> Json:
    annotations = {f"{PREFIX}{key}": value for key, value in {"backend-protocol": "HTTPS", **ROWS[row]}.items()}
    service = {"name": row, "port": {"number": 443}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    spec = {"rules": [{"host": f"{row}.test", "http": {"paths": [path]}}]}
    metadata = {"name": row, "namespace": "shop", "annotations": annotations}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


class World(NamedTuple):
    backend: Backend
    nginx: dict[str, int]
    lasthop: Lasthop
    levels: dict[str, str]
    """What the report says of before, by row."""
    now: dict[str, str]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        roots = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp"))) for _ in range(2)]
        server = stack.enter_context(backend(CERTIFICATES[GOOD].server_context()))
        ports = stack.enter_context(_nginx(roots[0], server.port))
        lasthop = stack.enter_context(contextlib.closing(Lasthop(roots[1])))
        documents = [*map(_ingress, ROWS), *surroundings(ROWS, server.port)]
        hops = imported("ingress-nginx", documents, [row for row in ROWS if row != "verified"], lasthop)
        lasthop.start(ready=False)
        until(lasthop.ready, "lasthop is ready")
        until(lambda: all(status(lasthop.port, row) == 200 for row in ROWS), "all rows are served")
        yield World(server, ports, lasthop, {row: hops[row]["old"] for row in ROWS}, {row: hops[row]["new"] for row in ROWS})


def test_the_levels_of_the_report_are_those_of_the_table(world: World) -> None:
    wanted = {"verified": "name", "off": "unverified", "no-secret": "unverified", "no-ca": "unverified", "no-name": "broken"}
    assert world.levels == wanted
    assert set(world.now.values()) == {"name"}


@pytest.mark.parametrize("certificate", list(CERTIFICATES))
def test_nginx_did_and_lasthop_does_what_the_report_says(world: World, certificate: str) -> None:
    world.backend.context = CERTIFICATES[certificate].server_context()
    before = {row: status(port, row) == 200 for row, port in world.nginx.items()}
    assert before == {row: certificate in ACCEPTED_BEFORE[level] for row, level in world.levels.items()}
    # Connections to the backend that are open were verified when they were made; only new ones are tried.
    world.backend.drop()
    now = {row: status(world.lasthop.port, row) == 200 for row in ROWS}
    assert now == dict.fromkeys(ROWS, certificate == GOOD)
