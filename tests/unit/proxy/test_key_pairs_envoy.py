"""Certificates and keys of Secrets: Lasthop and a real Envoy accept and refuse the same ones, with exceptions that are listed
here with reasons."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.binary import find_envoy
from lasthop.engine.engine import Engine
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.gateways.gateways import client_certificate
from lasthop.engine.resolve.gateways.listeners import own_listeners
from lasthop.engine.resolve.trust.certificates import BadCertificate, KeyPair, key_pair, normal_pair, parse_bundle
from tests.odd_certificates import odd_ders, pem
from tests.unit.proxy.key_pairs import CASES
from tests.world import NOW, keyed, mk_class, mk_gateway, mk_secret

STRICTER = {
    "RSA 8256": "each handshake would hold a thread that others share",
    "RSA 16384": "each handshake would hold a thread that others share",
    "TRUSTED CERTIFICATE": "it carries trust settings of OpenSSL, which would be lost",
    "subject-malformed": "nobody could be told which certificate it is",
}
"""What we refuse and Envoy takes, and why."""

TYPE = "type.googleapis.com/envoy.extensions."
TLS = TYPE + "transport_sockets.tls.v3."


def _anchors() -> Iterator[tuple[str, bytes]]:
    """Bundles that we take: everything above, and what chance makes of a good certificate."""
    texts = {name: chain.encode() for name, (chain, _) in CASES.items()}
    texts |= {f"odd {name}": pem(der) for name, der in odd_ders().items()}
    chance, good = random.Random(1), ssl.PEM_cert_to_DER_cert(CA.read_text())
    for number in range(400):
        at = chance.randrange(len(good))
        texts[f"byte {at}, {number}"] = pem(good[:at] + bytes([chance.randrange(256)]) + good[at + 1 :])
    for name, text in texts.items():
        with contextlib.suppress(BadCertificate):
            yield f"anchor {name}", parse_bundle(text).pem


CA = Path(__file__).parents[2] / "cases/files/ca.pem"
"""Always the same, so that chance has the same luck each time."""
ANCHORS = dict(_anchors())


class Taken(NamedTuple):
    listeners: set[str]
    clusters: set[str]
    """By which it was taken as a client certificate."""
    refused: dict[str, str]
    """Listeners, and why."""


@pytest.fixture(scope="module")
def taken(module_folder: Path) -> Iterator[Taken]:
    """Listeners and clusters are refused one by one, so one Envoy can judge all of them. It gets accepted pairs as Lasthop
    would send them, and refused pairs as they are written."""
    listeners = [_listener(module_folder / f"pipe-{n}", name, *pair) for n, (name, pair) in enumerate(CASES.items())]
    clusters = [_cluster(name, *pair) for name, pair in CASES.items()]
    clusters += [_trusting(name, anchor) for name, anchor in ANCHORS.items()]
    config = {
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": {"pipe": {"path": str(module_folder / "admin")}}},
        "dynamic_resources": {
            "lds_config": _file(module_folder / "lds.json", "envoy.config.listener.v3.Listener", listeners),
            "cds_config": _file(module_folder / "cds.json", "envoy.config.cluster.v3.Cluster", clusters),
        },
    }
    (module_folder / "envoy.json").write_text(json.dumps(config))
    command: list[str | Path] = [
        find_envoy().path,
        "-c",
        module_folder / "envoy.json",
        "--concurrency",
        "1",
        "--disable-hot-restart",
    ]
    with (module_folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "-l", "warning"], stdout=log, stderr=log)
    try:
        yield _taken(module_folder, process)
    finally:
        process.terminate()
        process.wait(10)


REJECTED = ("cluster_manager.cds.update_rejected: 1", "listener_manager.lds.update_rejected: 1")
"""Some are refused, so each response is, once all of it has been looked at."""


def _taken(folder: Path, process: subprocess.Popen[bytes]) -> Taken:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            stats = _get(folder / "admin", "/stats?filter=update_rejected")
        except (OSError, http.client.HTTPException):
            stats = ""
        if all(line in stats.splitlines() for line in REJECTED):
            dump = json.loads(_get(folder / "admin", "/config_dump"))["configs"]
            listeners = [x for part in dump for x in part.get("dynamic_listeners", [])]
            clusters = [x for part in dump for x in part.get("dynamic_active_clusters", [])]
            failed = [x["error_state"] for x in listeners if "error_state" in x]
            return Taken(
                {x["name"] for x in listeners if "error_state" not in x},
                {x["cluster"]["name"] for x in clusters},
                {x["failed_configuration"]["name"]: x["details"] for x in failed},
            )
        time.sleep(0.05)
    raise AssertionError(f"Envoy has not said what it takes: {(folder / 'log').read_text()}")


def _get(path: Path, what: str) -> str:
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(10)
        plain.connect(str(path))
        connection = http.client.HTTPConnection("admin")
        connection.sock = plain
        connection.request("GET", what)
        return connection.getresponse().read().decode()


def _file(path: Path, kind: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    typed = [{"@type": f"type.googleapis.com/{kind}", **resource} for resource in resources]
    path.write_text(json.dumps({"resources": typed}))
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}


def _given(chain: str, key: str) -> dict[str, Any]:
    if isinstance(judged(chain, key), KeyPair):
        chain, key = (part.decode() for part in normal_pair(chain.encode(), key.encode()))
    return {"tls_certificates": [{"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}]}


def _listener(pipe: Path, name: str, chain: str, key: str) -> dict[str, Any]:
    tls = {"@type": TLS + "DownstreamTlsContext", "common_tls_context": _given(chain, key)}
    proxy = {"@type": TYPE + "filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "x", "cluster": "x"}
    filters = {
        "filters": [{"name": "tcp", "typed_config": proxy}],
        "transport_socket": {"name": "tls", "typed_config": tls},
    }
    return {"name": name, "address": {"pipe": {"path": str(pipe)}}, "filter_chains": [filters]}


def _cluster(name: str, chain: str, key: str) -> dict[str, Any]:
    tls = {"@type": TLS + "UpstreamTlsContext", "common_tls_context": _given(chain, key)}
    return {"name": name, "connect_timeout": "1s", "transport_socket": {"name": "tls", "typed_config": tls}}


def _trusting(name: str, anchor: bytes) -> dict[str, Any]:
    trusted = {"trusted_ca": {"inline_bytes": base64.b64encode(anchor).decode()}}
    tls = {"@type": TLS + "UpstreamTlsContext", "common_tls_context": {"validation_context": trusted}}
    return {"name": name, "connect_timeout": "1s", "transport_socket": {"name": "tls", "typed_config": tls}}


def judged(chain: str, key: str) -> KeyPair | Problem:
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_secret("shop/web", chain, key)))
    return key_pair(engine.graph, Key("Secret", "shop", "web"))


@pytest.mark.parametrize("name", CASES)
def test_lasthop_and_envoy_accept_and_refuse_the_same_keys(taken: Taken, name: str) -> None:
    pair = judged(*CASES[name])
    as_client = isinstance(pair, KeyPair)
    # Listeners have one more objection: see resolve/gateways/listeners.py.
    as_server = isinstance(pair, KeyPair) and not pair.must_staple
    if name in STRICTER:
        assert (as_server, as_client) == (False, False)
    else:
        assert (name in taken.listeners, name in taken.clusters) == (as_server, as_client), (pair, taken.refused.get(name))


def test_where_we_are_stricter_envoy_does_take_it(taken: Taken) -> None:
    assert STRICTER.keys() <= taken.listeners


def test_every_bundle_that_we_take_envoy_takes(taken: Taken) -> None:
    assert len(ANCHORS) > 200
    assert ANCHORS.keys() <= taken.clusters


def test_both_answers_occur(taken: Taken) -> None:
    assert {"P-256", "RSA 2048", "Ed25519", "byte order mark", "indented"} <= taken.listeners & taken.clusters
    assert "must-staple" in taken.clusters
    assert not {"P-224", "Ed448", "DSA", "only key agreement", "must-staple"} & taken.listeners


def test_a_certificate_that_demands_stapling_is_shown_to_backends_and_not_to_clients() -> None:
    engine = Engine(now=NOW.timestamp())
    https = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "web"}]}}
    gateway = mk_gateway("shop/web", [https], tls={"backend": {"clientCertificateRef": {"name": "web"}}})
    engine.apply(keyed(mk_class(), gateway, mk_secret("shop/web", *CASES["must-staple"])))
    key = Key("Gateway", "shop", "web")
    (listener,) = own_listeners(engine.graph, key)
    assert not listener.served
    assert listener.conditions[1].message == (
        "tls.certificateRefs[0]: Secret shop/web: tls.crt requires OCSP stapling (must-staple), which is not supported; "
        "use one without it"
    )
    assert client_certificate(engine.graph, key) == Key("Secret", "shop", "web")
