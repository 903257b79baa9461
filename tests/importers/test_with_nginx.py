"""The same wrong certificates through a real nginx, configured as ingress-nginx writes it, and through Lasthop with what
`lasthop import` makes of the Ingresses: what the report says of before and of now is what happens.

Needs nginx (Debian: `apt-get install nginx-light`); it is not run as a service.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.backends import Backend, backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA
from tests.proxy.lasthop import EXECUTABLE, Lasthop

PREFIX = "nginx.ingress.kubernetes.io/"
NAME = "api.example"
Json = dict[str, Any]
SECRET = {"proxy-ssl-secret": "shop/ca"}
ROWS: dict[str, dict[str, str]] = {
    "verified": {**SECRET, "proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "off": {**SECRET, "proxy-ssl-verify": "off", "proxy-ssl-name": NAME},
    "no-secret": {"proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "no-ca": {"proxy-ssl-secret": "shop/pair", "proxy-ssl-verify": "on", "proxy-ssl-name": NAME},
    "no-name": {**SECRET, "proxy-ssl-verify": "on"},
}
EXPIRED = (NOW - datetime.timedelta(days=9), NOW - DAY)
CERTIFICATES = {
    "good": Certificate("backend", CA, sans=dns(NAME)),
    "wrong name": Certificate("backend", CA, sans=dns("other.example")),
    "other CA": Certificate("backend", OTHER_CA, sans=dns(NAME)),
    "expired": Certificate("backend", CA, sans=dns(NAME), valid=EXPIRED),
    "name in the CN only": Certificate(NAME, CA),
}
ACCEPTED_BEFORE = {"name": {"good", "name in the CN only"}, "unverified": set(CERTIFICATES), "broken": set[str]()}
"""By the level that the report gives."""


def test_nginx_is_there() -> None:
    assert shutil.which("nginx"), "install nginx, as with: apt-get install nginx-light"


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
    command = ["nginx", "-e", str(root / "error.log"), "-p", str(root), "-c", str(root / "nginx.conf")]
    process = subprocess.Popen(command)
    try:
        until(lambda: all(_status(port, row) for row, port in ports.items()), "nginx serves")
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def _status(port: int, row: str) -> int:
    """Returns the status of a request; 0 while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    with contextlib.closing(connection), contextlib.suppress(ConnectionRefusedError):
        connection.request("GET", "/", headers={"Host": f"{row}.test"})
        return connection.getresponse().status
    return 0


def _ingress(row: str) -> Json:
    annotations = {f"{PREFIX}{key}": value for key, value in {"backend-protocol": "HTTPS", **ROWS[row]}.items()}
    service = {"name": row, "port": {"number": 443}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    spec = {"rules": [{"host": f"{row}.test", "http": {"paths": [path]}}]}
    metadata = {"name": row, "namespace": "shop", "annotations": annotations}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _input(upstream: int) -> list[Json]:
    found: list[Json] = [_ingress(row) for row in ROWS]
    for row in ROWS:
        metadata = {"name": row, "namespace": "shop"}
        spec = {"ports": [{"name": "https", "port": 443, "targetPort": upstream}]}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        labelled = {**metadata, "labels": {"kubernetes.io/service-name": row}}
        slices = {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]}
        ports = [{"name": "https", "port": upstream}]
        found.append(
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": labelled, **slices, "ports": ports}
        )
    leaf = CERTIFICATES["good"]
    for name, data in (("ca", {"ca.crt": CA.pem}), ("pair", {"tls.crt": leaf.pem, "tls.key": leaf.key_pem})):
        metadata = {"name": name, "namespace": "shop"}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    return found


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
        server = stack.enter_context(backend(CERTIFICATES["good"].server_context()))
        ports = stack.enter_context(_nginx(roots[0], server.port))
        lasthop = stack.enter_context(contextlib.closing(Lasthop(roots[1])))
        report = _imported(roots[1], lasthop, server.port)
        lasthop.start(ready=False)
        until(lasthop.ready, "lasthop is ready")
        until(lambda: all(_status(lasthop.port, row) == 200 for row in ROWS), "all rows are served")
        hops = {each["backend"].partition("/")[2].partition(":")[0]: each for each in report["hops"]}
        yield World(server, ports, lasthop, {row: hops[row]["old"] for row in ROWS}, {row: hops[row]["new"] for row in ROWS})


def _imported(root: Path, lasthop: Lasthop, upstream: int) -> Json:
    """Imports with a decision for each open port, and puts the objects where Lasthop serves them, on a port of the test's."""
    (root / "in.yaml").write_text(yaml.safe_dump_all(_input(upstream)))
    decided = [{"port": f"shop/{row}:443", "ca": {"secret": "ca"}, "hostname": NAME} for row in ROWS if row != "verified"]
    (root / "decisions.yaml").write_text(yaml.safe_dump({"backends": decided}))
    files: list[str | Path] = ["--decisions", root / "decisions.yaml", "--to", root / "new", "--with-secrets", "-o", "json"]
    command: list[str | Path] = [EXECUTABLE, "import", "ingress-nginx", root / "in.yaml", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    for file in (root / "new" / "objects").iterdir():
        found = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in found:
            if each["kind"] == "Gateway":
                each["spec"]["addresses"] = [{"type": "IPAddress", "value": "127.0.0.1"}]
                for listener in each["spec"]["listeners"]:
                    listener["port"] = lasthop.port
        lasthop.write(file.name, *found)
    lasthop.write("namespaces.yaml", docs.namespace("shop"), docs.namespace("gateways"))
    report: Json = json.loads(done.stdout)
    return report


def test_the_levels_of_the_report_are_those_of_the_table(world: World) -> None:
    wanted = {"verified": "name", "off": "unverified", "no-secret": "unverified", "no-ca": "unverified", "no-name": "broken"}
    assert world.levels == wanted
    assert set(world.now.values()) == {"name"}


@pytest.mark.parametrize("certificate", list(CERTIFICATES))
def test_nginx_did_and_lasthop_does_what_the_report_says(world: World, certificate: str) -> None:
    world.backend.context = CERTIFICATES[certificate].server_context()
    before = {row: _status(port, row) == 200 for row, port in world.nginx.items()}
    assert before == {row: certificate in ACCEPTED_BEFORE[level] for row, level in world.levels.items()}
    # Connections to the backend that are open were verified when they were made; only new ones are tried.
    world.backend.drop()
    now = {row: _status(world.lasthop.port, row) == 200 for row in ROWS}
    assert now == dict.fromkeys(ROWS, certificate == "good")
