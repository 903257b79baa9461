"""The same certificates through an old gateway, and through Lasthop with the imported configuration.

backend with one certificate after another  <──  the old program, a host for each row of the table
                                            <──  Lasthop with the imported objects, the same hosts
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import ipaddress
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from tests.certificates import DAY, NOW, Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA
from tests.proxy.lasthop import EXECUTABLE, Lasthop

Json = dict[str, Any]
NAME = "api.example"
URI = "spiffe://example/api"
ADDRESS = "127.0.0.1"
EXPIRED = (NOW - datetime.timedelta(days=9), NOW - DAY)
GOOD, CN_ONLY, BY_ADDRESS, BY_URI = "good", "name in the CN only", "the address as its name", "a URI as its name"
CERTIFICATES = {
    GOOD: Certificate("backend", CA, sans=dns(NAME)),
    "wrong name": Certificate("backend", CA, sans=dns("other.example")),
    "other CA": Certificate("backend", OTHER_CA, sans=dns(NAME)),
    "expired": Certificate("backend", CA, sans=dns(NAME), valid=EXPIRED),
    CN_ONLY: Certificate(NAME, CA),
    BY_ADDRESS: Certificate("backend", CA, sans=(x509.IPAddress(ipaddress.ip_address(ADDRESS)),)),
    BY_URI: Certificate("backend", CA, sans=(x509.UniformResourceIdentifier(URI),)),
}


def status(port: int, row: str) -> int:
    """Returns the status of a request to a row's host; 0 without a listener."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=15)
    with contextlib.closing(connection), contextlib.suppress(ConnectionRefusedError):
        connection.request("GET", "/", headers={"Host": f"{row}.test"})
        return connection.getresponse().status
    return 0


def surroundings(rows: Iterable[str], upstream: int) -> list[Json]:
    """Returns a Service for each row, whose port 443 leads to the backend, and the CA as Secret and ConfigMap."""
    found: list[Json] = []
    for row in rows:
        metadata = {"name": row, "namespace": "shop"}
        ports = [{"name": "https", "port": 443, "targetPort": upstream}]
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
        endpoints = [{"addresses": [ADDRESS], "conditions": {"ready": True, "serving": True}}]
        slices = {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "https", "port": upstream}]}
        labelled = {**metadata, "labels": {"kubernetes.io/service-name": row}}
        found.append({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": labelled, **slices})
    leaf = CERTIFICATES[GOOD]
    for name, data in (("ca", {"ca.crt": CA.pem}), ("pair", {"tls.crt": leaf.pem, "tls.key": leaf.key_pem})):
        metadata = {"name": name, "namespace": "shop"}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    metadata = {"name": "ca", "namespace": "shop"}
    return [*found, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": CA.pem}}]


def imported(
    system: str, documents: Sequence[Json], undecided: Iterable[str], lasthop: Lasthop, *options: str | Path
) -> Mapping[str, Json]:
    """Imports with a CA and a name for each row that is undecided. Returns the report's line of each row."""
    decided = [{"port": f"shop/{row}:443", "ca": {"secret": "ca"}, "hostname": NAME} for row in undecided]
    hops = import_report(system, documents, decided, lasthop, *options)["hops"]
    return {each["backend"].partition("/")[2].partition(":")[0]: each for each in hops}


def import_report(
    system: str, documents: Sequence[Json], decided: Sequence[Json], lasthop: Lasthop, *options: str | Path
) -> Json:
    """Imports, and gives Lasthop the objects, on a port of the test's. Returns the report."""
    root = lasthop.root
    (root / "in.yaml").write_text(yaml.safe_dump_all(documents))
    (root / "decisions.yaml").write_text(yaml.safe_dump({"backends": decided}))
    files: list[str | Path] = ["--decisions", root / "decisions.yaml", "--to", root / "new", "--with-secrets", "-o", "json"]
    command: list[str | Path] = [EXECUTABLE, "import", system, root / "in.yaml", *files, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    for file in (root / "new" / "objects").iterdir():
        found = [each for each in yaml.safe_load_all(file.read_text()) if each]
        for each in found:
            if each["kind"] == "Gateway":
                each["spec"]["addresses"] = [{"type": "IPAddress", "value": ADDRESS}]
                # One port is enough, and it cannot have TLS and plaintext.
                each["spec"]["listeners"] = [one for one in each["spec"]["listeners"] if one["protocol"] == "HTTP"]
                for listener in each["spec"]["listeners"]:
                    listener["port"] = lasthop.port
        lasthop.write(file.name, *found)
    lasthop.write("namespaces.yaml", docs.namespace("shop"), docs.namespace("gateways"))
    report: Json = json.loads(done.stdout)
    return report
