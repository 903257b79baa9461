"""Presents wrong certificates to HAProxy, configured like OpenShift's router, to Envoy, configured like Emissary, and to
Lasthop with the imported objects: the report describes the behaviour before and after correctly.

test_with_nginx.py does the same for ingress-nginx, and `make import-traefik` for Traefik.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lasthop.edge.proxy.binary import find_envoy
from tests.backends import backend, until
from tests.importers.end_to_end import ADDRESS, CERTIFICATES, GOOD, import_report, status, surroundings
from tests.importers.end_to_end import NAME as SERVER
from tests.ports import free_port
from tests.proxy.certs import CA
from tests.proxy.lasthop import Lasthop
from tools import programs

Json = dict[str, Any]
CHAIN = set(CERTIFICATES) - {"other CA", "expired"}
ACCEPTED = {"chain": CHAIN, "unverified": set(CERTIFICATES), "name": {GOOD}}


class OldGateway(NamedTuple):
    system: str
    levels: dict[str, str]
    """Returns the report's old level of each row."""
    objects: Sequence[Json]
    command: Callable[[Path, int, int], list[str]]
    """Gets a folder, a port and that of the backend."""


def _object(version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def _route(name: str, **tls: str) -> Json:
    spec = {
        "host": f"{name}.test",
        "to": {"kind": "Service", "name": name},
        "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Allow", **tls},
    }
    return _object("route.openshift.io/v1", "Route", name, spec)


def _haproxy(root: Path, port: int, upstream: int) -> list[str]:
    (root / "ca.pem").write_text(CA.pem)
    lines = {"own-ca": f"ssl verify required ca-file {root}/ca.pem", "no-ca": "ssl verify none"}
    backends = "".join(f"backend {name}\n  server s {ADDRESS}:{upstream} {line}\n" for name, line in lines.items())
    chosen = "".join(f"  use_backend {name} if {{ hdr(host) {name}.test }}\n" for name in lines)
    (root / "haproxy.cfg").write_text(f"""global
  ssl-server-verify required
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  no option http-server-close
frontend public
  bind {ADDRESS}:{port}
{chosen}{backends}""")
    return [programs.path("haproxy"), "-db", "-f", f"{root}/haproxy.cfg"]


def _emissary(kind: str, name: str, **spec: Any) -> Json:
    return _object("getambassador.io/v3alpha1", kind, name, spec)


def _mapping(name: str, **spec: Any) -> Json:
    service = f"https://{name}:443"
    return _emissary("Mapping", name, hostname=f"{name}.test", prefix="/", service=service, timeout_ms=3000, **spec)


def _envoy(root: Path, port: int, upstream: int) -> list[str]:
    """Writes the clusters that Emissary emits: a context with a CA checks the chain, and without one nothing is checked."""
    trusted = {"validation_context": {"trusted_ca": {"inline_string": CA.pem}}}
    contexts: dict[str, Json] = {"with-ca": trusted, "https-alone": {}}
    socket = {"socket_address": {"address": ADDRESS, "port_value": upstream}}
    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                    "common_tls_context": context,
                },
            },
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]},
        }
        for name, context in contexts.items()
    ]
    hosts = [
        {"name": name, "domains": [f"{name}.test"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": name}}]}
        for name in contexts
    ]
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress_http",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    listener = {
        "address": {"socket_address": {"address": ADDRESS, "port_value": port}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
    (root / "envoy.yaml").write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}))
    command = [str(find_envoy().path), "-c", f"{root}/envoy.yaml", "--disable-hot-restart", "--concurrency", "1"]
    return [*command, "--log-level", "off"]


LEAF = CERTIFICATES[GOOD]
AUTHORITY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "authority", "namespace": "shop"},
    "stringData": {"tls.crt": CA.pem},
}
GATEWAYS = {
    each.system: each
    for each in (
        OldGateway(
            "openshift",
            {"own-ca": "chain", "no-ca": "unverified"},
            [_route("own-ca", destinationCACertificate=CA.pem), _route("no-ca")],
            _haproxy,
        ),
        OldGateway(
            "emissary",
            {"with-ca": "chain", "https-alone": "unverified"},
            [
                AUTHORITY,
                _emissary(
                    "Listener",
                    "http",
                    port=80,
                    protocol="HTTP",
                    securityModel="XFP",
                    hostBinding={"namespace": {"from": "ALL"}},
                ),
                _emissary("Host", "all", hostname="*", requestPolicy={"insecure": {"action": "Route"}}),
                _emissary("TLSContext", "upstream", secret="pair", ca_secret="authority", sni=SERVER),
                _mapping("with-ca", tls="upstream"),
                _mapping("https-alone"),
            ],
            _envoy,
        ),
    )
}
OPTIONS = {"openshift": ("--openshift-no-service-ca",), "emissary": ()}


@pytest.mark.parametrize("system", [pytest.param("openshift", marks=pytest.mark.program("haproxy")), "emissary"])
def test_the_old_gateway_did_and_lasthop_does_what_the_report_says(system: str) -> None:
    old = GATEWAYS[system]
    with contextlib.ExitStack() as stack:
        roots = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp"))) for _ in range(2)]
        server = stack.enter_context(backend(LEAF.server_context()))
        port = free_port()
        command = old.command(roots[0], port, server.port)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait, 20)
        stack.callback(process.terminate)
        lasthop = stack.enter_context(contextlib.closing(Lasthop(roots[1])))
        decided = [{"port": f"shop/{row}:443", "ca": {"secret": "ca"}, "hostname": SERVER} for row in old.levels]
        documents = [*old.objects, *surroundings(old.levels, server.port)]
        hops = import_report(system, documents, decided, lasthop, *OPTIONS[system])["hops"]
        assert {each["backend"].partition("/")[2].partition(":")[0]: each["old"] for each in hops} == old.levels
        assert {each["new"] for each in hops} == {"name"}
        lasthop.start(ready=False)
        until(lasthop.ready, "lasthop is ready")
        ports = (port, lasthop.port)
        until(lambda: all(status(each, row) == 200 for each in ports for row in old.levels), "all rows are served")
        for name, certificate in CERTIFICATES.items():
            server.context = certificate.server_context()
            server.drop()
            before = {row: status(port, row) == 200 for row in old.levels}
            assert before == {row: name in ACCEPTED[level] for row, level in old.levels.items()}, name
            server.drop()
            assert {row: status(lasthop.port, row) == 200 for row in old.levels} == dict.fromkeys(old.levels, name == GOOD), (
                name
            )
