"""`lasthop pin`: a backend's certificate, and the PinSet for it."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lasthop.edge.probe.handshake import fetch
from tests.backends import Backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.folders import lasthop, write

CA = Certificate("corp CA", ca=True)
LEAF = Certificate("api", CA, sans=dns("api.internal", "*.api.internal"), valid=(NOW - DAY, NOW + 90 * DAY))
OLD = Certificate("old", sans=dns("old.internal"), valid=(NOW - 9 * DAY, NOW - 3 * DAY))
DER = LEAF.certificate.public_bytes(Encoding.DER)
SPKI = LEAF.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


# --- the handshake ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("mode", "wanted"), [(ssl.CERT_NONE, ""), (ssl.CERT_OPTIONAL, "requested"), (ssl.CERT_REQUIRED, "required")]
)
def test_the_whole_chain_is_seen_and_nothing_is_sent(version: ssl.TLSVersion, mode: ssl.VerifyMode, wanted: str) -> None:
    context = LEAF.server_context(CA)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = mode
    with closing(Backend(context)) as backend:
        seen = fetch("127.0.0.1", backend.port, "api.internal")
        assert seen.chain == (DER, CA.certificate.public_bytes(Encoding.DER))
        assert seen.client_certificate == wanted
        assert [connection.sni for connection in backend.connections] == ["api.internal"]
        assert not backend.requests


def test_no_sni_is_sent_to_an_address() -> None:
    with closing(Backend(LEAF.server_context())) as backend:
        assert lasthop("pin", f"127.0.0.1:{backend.port}").exit_code == 0
        assert backend.connections[0].sni is None


# --- the manifest ----------------------------------------------------------------------------------------------------


def test_the_certificate_itself_is_pinned_by_default_and_the_chain_is_listed() -> None:
    with closing(Backend(LEAF.server_context(CA))) as backend:
        result = lasthop("pin", f"127.0.0.1:{backend.port}", "--server-name", "api.internal", "-n", "shop")
    manifest = yaml.safe_load(result.stdout)
    assert manifest == {
        "apiVersion": "lasthop.dev/v1alpha1",
        "kind": "PinSet",
        "metadata": {"name": "api.internal", "namespace": "shop"},
        "spec": {"certificates": [LEAF.pem]},
    }
    assert "# The next certificate" in result.stdout
    assert "not verified: compare" in result.stdout
    for message in (
        *("subject  CN=api", "issuer   CN=corp CA", "names    DNS api.internal, DNS *.api.internal"),
        *("(89 days left)", "key      EC secp256r1", "itself (self-signed)"),
    ):
        assert message in result.stderr


@pytest.mark.parametrize(
    ("form", "pin"),
    [
        ("key", ("SPKI", base64.b64encode(hashlib.sha256(SPKI).digest()).decode())),
        ("fingerprint", ("Certificate", hashlib.sha256(DER).digest().hex(":").upper())),
    ],
)
def test_a_hash_is_pinned_on_demand(tmp_path: Path, form: str, pin: tuple[str, str]) -> None:
    (tmp_path / "leaf.pem").write_text(LEAF.pem)
    result = lasthop("pin", tmp_path / "leaf.pem", "--by", form)
    kind, value = pin
    assert yaml.safe_load(result.stdout)["spec"] == {"pins": [{"type": kind, "algorithm": "SHA256", "value": value}]}
    assert "# - {type: " in result.stdout


def test_a_file_with_a_key_beside_the_certificate_keeps_it_to_itself(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text(LEAF.key_pem + LEAF.pem)
    result = lasthop("pin", tmp_path / "both.pem")
    assert yaml.safe_load(result.stdout)["spec"]["certificates"] == [LEAF.pem]
    assert "PRIVATE" not in result.output


def test_the_name_of_a_file_adds_nothing_to_the_manifest(tmp_path: Path) -> None:
    named = tmp_path / "x\nkind: VerificationWaiver\n---\u2028\x85y.pem"
    named.write_text(LEAF.pem)
    result = lasthop("pin", named)
    (only,) = yaml.safe_load_all(result.stdout)
    assert only["kind"] == "PinSet"
    assert result.stdout.startswith("# From ") and "x\\nkind: VerificationWaiver" in result.stdout.splitlines()[0]


def test_certificates_that_a_gateway_would_refuse_are_reported(tmp_path: Path) -> None:
    (tmp_path / "old.pem").write_text(OLD.pem)
    assert "it is expired 3 days ago" not in lasthop("pin", tmp_path / "old.pem", "--by", "key").stderr
    message = lasthop("pin", tmp_path / "old.pem").stderr
    assert "a gateway will reject it" in message
    context = LEAF.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    with closing(Backend(context)) as backend:
        assert "demands a client certificate" in lasthop("pin", f"127.0.0.1:{backend.port}").stderr


@pytest.mark.parametrize("form", ["certificate", "key", "fingerprint"])
def test_the_manifest_is_admitted(tmp_path: Path, form: str) -> None:
    (tmp_path / "leaf.pem").write_text(LEAF.pem)
    folder = write(tmp_path / "objects")
    (folder / "pins.yaml").write_text(lasthop("pin", tmp_path / "leaf.pem", "--by", form).stdout)
    result = lasthop("check", folder, "-o", "json")
    assert not [f for f in json.loads(result.stdout)["findings"] if f["severity"] == "error"], result.stdout


# --- errors ----------------------------------------------------------------------------------------------------------


def test_errors_of_the_network_have_a_remedy() -> None:
    with closing(Backend()) as plain, closing(Backend(banner=b"220 smtp\r\n")) as talkative:
        for backend in (plain, talkative):
            assert "does not speak TLS on this port" in lasthop("pin", f"127.0.0.1:{backend.port}").stderr
    assert "nothing listens on this port" in lasthop("pin", f"127.0.0.1:{plain.port}").stderr
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = lasthop("pin", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2")
    assert "does not answer a TLS handshake within 0.2 s" in result.stderr
    assert "is not found in DNS" in lasthop("pin", "nowhere.invalid:443").stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello", "holds no PEM certificate"),
        (LEAF.key_pem, "but a private key"),
        (LEAF.pem[:200], "truncated"),
        ("kind: Secret\nmetadata: {name: x}\n", "holds no PEM certificate"),
    ],
)
def test_errors_of_a_file_have_a_remedy(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "file").write_text(content)
    result = lasthop("pin", tmp_path / "file")
    assert (result.exit_code, message in result.stderr) == (1, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere.pem",), "file nowhere.pem does not exist"),
        (("api.internal",), "is not HOST:PORT"),
        (("file", "--name", "Bad_Name"), "is not a valid object name"),
    ],
)
def test_invalid_combinations_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], message: str
) -> None:
    (tmp_path / "file").write_text(LEAF.pem)
    monkeypatch.chdir(tmp_path)
    result = lasthop("pin", *args)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
