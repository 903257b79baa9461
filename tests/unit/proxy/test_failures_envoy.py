"""Each kind of backend failure, with a real Envoy and a real server: the reason in the log."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.edge.proxy.admin import Admin, request
from lasthop.edge.proxy.failures import explain_failure
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.servers import answer, bad_request, hang_up, read_and_hang_up, say_nothing, server
from tests.unit.proxy.static_envoy import StaticEnvoy, cluster, static_envoy, tls_cluster

WANTS = "api.example"

CA = Certificate("the policy's CA", ca=True)
OTHER_CA = Certificate("another CA", ca=True)
INTERMEDIATE = Certificate("an intermediate", CA, ca=True)
GOOD = Certificate("good", CA, sans=dns(WANTS))
EXPIRED_CA = Certificate("a CA of old", ca=True, valid=(NOW - 3 * DAY, NOW - DAY))
CLIENT = Certificate("the Gateway", CA, usage=ExtendedKeyUsageOID.CLIENT_AUTH)

UNKNOWN_CA = (
    "certificate is signed by an unknown CA (not by the CA of policy shop/api, "
    "or the backend leaves out an intermediate certificate)"
)


def tls(certificate: Certificate = GOOD, **settings: Any) -> ssl.SSLContext:
    context = certificate.server_context()
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def issued(*names: str, issuer: Certificate | None = CA, **settings: Any) -> ssl.SSLContext:
    return Certificate("backend", issuer, sans=dns(*(names or (WANTS,))), **settings).server_context()


def with_sans(*sans: x509.GeneralName) -> ssl.SSLContext:
    return Certificate("backend", CA, sans=sans).server_context()


def wanting_a_client_certificate(**settings: Any) -> ssl.SSLContext:
    context = tls(verify_mode=ssl.CERT_REQUIRED, **settings)
    context.load_verify_locations(cadata=OTHER_CA.pem)
    return context


def with_ciphers(ciphers: str) -> ssl.SSLContext:
    context = tls(maximum_version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(ciphers)
    return context


def alerting(description: int) -> ssl.SSLContext:
    """Answers each ClientHello with that alert."""
    return tls(sni_callback=lambda *_: description)


V1_2 = ssl.TLSVersion.TLSv1_2
V1_3 = ssl.TLSVersion.TLSv1_3
CLIENT_CERTIFICATE = {
    "tls_certificates": [
        {"certificate_chain": {"inline_string": CLIENT.pem}, "private_key": {"inline_string": CLIENT.key_pem}}
    ]
}
NOT_ABOVE_1_2 = {"tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_2"}}

# name: the server, its behaviour, more of Envoy's CommonTlsContext, the sentence
CASES: dict[str, tuple[ssl.SSLContext | None, Any, dict[str, Any], str | None]] = {
    "right": (tls(), answer, {}, None),
    "wrong-name": (
        issued("old.example", "older.example"),
        answer,
        {},
        "certificate is for old.example, older.example, policy shop/api wants api.example",
    ),
    "other-kinds-of-names": (
        with_sans(x509.UniformResourceIdentifier("spiffe://a/b"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))),
        answer,
        {},
        "certificate is for spiffe://a/b, 127.0.0.1, policy shop/api wants api.example",
    ),
    "many-names": (
        issued(*(f"{letter}.example" for letter in "abcdefgh")),
        answer,
        {},
        "certificate is for a.example, b.example, c.example, d.example, e.example and 3 more, "
        "policy shop/api wants api.example",
    ),
    "no-names": (
        Certificate(WANTS, CA).server_context(),
        answer,
        {},
        "certificate has no subjectAltName (a common name does not count), policy shop/api wants api.example",
    ),
    "hostile-name": (
        with_sans(x509.DNSName("a] KEY_USAGE_BIT_INCORRECT"), x509.UniformResourceIdentifier("http://x/\x1b[31m\nok")),
        answer,
        {},
        "certificate is for a]_KEY_USAGE_BIT_INCORRECT, http://x/\\x1b[31m\\nok, policy shop/api wants api.example",
    ),
    "wrong-ca": (issued(issuer=OTHER_CA), answer, {}, UNKNOWN_CA),
    "wrong-ca-that-is-sent-along": (
        Certificate("backend", OTHER_CA, sans=dns(WANTS)).server_context(OTHER_CA),
        answer,
        {},
        UNKNOWN_CA,
    ),
    "missing-intermediate": (issued(issuer=INTERMEDIATE), answer, {}, UNKNOWN_CA),
    "self-signed": (
        issued(issuer=None),
        answer,
        {},
        "self-signed certificate, which is not among those that policy shop/api trusts",
    ),
    "expired": (issued(valid=(NOW - 3 * DAY, NOW - DAY)), answer, {}, "certificate has expired"),
    "expired-ca": (
        issued(issuer=EXPIRED_CA),
        answer,
        {"validation_context": {"trusted_ca": {"inline_string": EXPIRED_CA.pem}}},
        "certificate of the CA that signed the backend's has expired",
    ),
    "not-yet-valid": (issued(valid=(NOW + DAY, NOW + 3 * DAY)), answer, {}, "certificate is not valid yet"),
    "wrong-usage": (
        issued(usage=ExtendedKeyUsageOID.CLIENT_AUTH),
        answer,
        {},
        "certificate is not for servers (its extended key usage lacks serverAuth)",
    ),
    "wrong-pin": (
        tls(),
        answer,
        {"validation_context": {"verify_certificate_hash": ["00" * 32]}},
        "certificate is not one of those that policy shop/api pins",
    ),
    "plaintext": (None, bad_request, {}, "backend does not speak TLS on this port (it answered in plaintext)"),
    "silent": (
        None,
        say_nothing,
        {},
        "connect timeout (TCP or TLS handshake): perhaps the backend does not speak TLS",
    ),
    "only-tls-1.3": (tls(minimum_version=V1_3), answer, NOT_ABOVE_1_2, "no common TLS version with the backend"),
    "no-common-cipher": (
        with_ciphers("ECDHE-ECDSA-AES256-CCM8"),
        answer,
        {},
        "no common TLS cipher, curve or version with the backend",
    ),
    "client-certificate-1.2": (
        wanting_a_client_certificate(maximum_version=V1_2),
        answer,
        {},
        "backend wants a client certificate, or has no TLS cipher or curve in common with us",
    ),
    "client-certificate-1.3": (
        wanting_a_client_certificate(minimum_version=V1_3),
        answer,
        {},
        "backend closed the connection before it responded (with TLS 1.3 a backend does this if it "
        "wants a client certificate, or speaks another protocol than ALPN offers)",
    ),
    "wrong-client-certificate-1.2": (
        wanting_a_client_certificate(maximum_version=V1_2),
        answer,
        CLIENT_CERTIFICATE,
        "backend refuses the client certificate of Secret shop/own",
    ),
    "wrong-client-certificate-1.3": (
        wanting_a_client_certificate(minimum_version=V1_3),
        answer,
        CLIENT_CERTIFICATE,
        "backend closed the connection before it responded (with TLS 1.3 a backend does this if it refuses the client "
        "certificate of Secret shop/own, or speaks another protocol than ALPN offers)",
    ),
    "unknown-server-name": (
        alerting(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME),
        answer,
        {},
        "backend does not serve the hostname that policy shop/api sends as SNI",
    ),
    "client-certificate-alert": (
        alerting(116),
        answer,
        {},
        "backend wants a client certificate, and the Gateway has none",
    ),
    "weak-client": (alerting(71), answer, {}, "no common TLS cipher, curve or version with the backend"),
    "broken-backend": (alerting(80), answer, {}, "backend aborted the TLS handshake (alert: internal error)"),
    "no-common-protocol": (
        alerting(120),
        answer,
        {},
        "no common protocol with the backend (ALPN: HTTP/2 or HTTP/1.1)",
    ),
    "ends-in-the-handshake": (None, read_and_hang_up, {}, "backend closed the connection during the TLS handshake"),
    "resets-the-handshake": (None, hang_up, {}, "backend reset the connection during the TLS handshake"),
    "ends-after-the-handshake": (
        tls(maximum_version=V1_2),
        hang_up,
        {},
        "backend closed the connection before it responded (with TLS 1.3 a backend does this if it "
        "wants a client certificate, or speaks another protocol than ALPN offers)",
    ),
}


@pytest.fixture(scope="module")
def envoy(module_folder: Path) -> Iterator[StaticEnvoy]:
    with contextlib.ExitStack() as stack:
        clusters = [
            tls_cluster(name, stack.enter_context(server(context, handler)), ca=CA.pem, wants=WANTS, common=common)
            for name, (context, handler, common, _) in CASES.items()
        ]
        clusters.append(tls_cluster("closed", free_port(), ca=CA.pem, wants=WANTS))
        clusters.append(tls_cluster("no-endpoints", None, ca=CA.pem, wants=WANTS))
        clusters.append(cluster("no-policy", free_port()))
        yield stack.enter_context(static_envoy(module_folder, clusters))


@pytest.mark.parametrize("case", CASES)
def test_the_log_describes_the_backends_problem(envoy: StaticEnvoy, case: str) -> None:
    status, body = envoy.get(case)
    expected = CASES[case][3]
    entry = envoy.entry(case)
    assert explain_failure(entry) == expected, entry
    assert status == (503 if expected else 200)
    assert "certificate" not in body.lower(), "what the certificate says is not for the client"


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("closed", 503, "connection refused: nothing listens on the backend's port"),
        ("no-endpoints", 503, "backend has no ready endpoint"),
        ("no-policy", 503, "connection refused: nothing listens on the backend's port"),
        (
            "not-there",
            500,
            "no usable backend: its BackendTLSPolicy, its backendRef or the client certificate of the Gateway is "
            "invalid; see `lasthop status`",
        ),
        (
            "refused",
            500,
            "no usable backend: its BackendTLSPolicy, its backendRef or the client certificate of the Gateway is "
            "invalid; see `lasthop status`",
        ),
    ],
)
def test_the_log_explains_why_no_backend_was_reached(envoy: StaticEnvoy, name: str, status: int, sentence: str) -> None:
    assert envoy.get(name)[0] == status
    assert explain_failure(envoy.entry(name)) == sentence


async def test_the_statistics_count_each_cause_by_cluster(envoy: StaticEnvoy) -> None:
    envoy.get("wrong-name")
    envoy.get("wrong-ca")
    stats = await Admin(envoy.admin_socket).stats(r"^cluster\..*\.ssl\.[a-z_]+$")
    assert stats["cluster.wrong-name.ssl.fail_verify_san"] >= 1
    assert stats["cluster.wrong-ca.ssl.fail_verify_error"] >= 1


async def test_a_dump_of_the_configuration_shows_no_private_key(envoy: StaticEnvoy) -> None:
    _, body = await request(envoy.admin_socket, "GET", "/config_dump?include_eds")
    dump = body.decode()
    assert "[redacted]" in dump
    assert "PRIVATE KEY" not in dump
