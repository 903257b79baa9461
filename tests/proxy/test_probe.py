"""`lasthop probe` agrees with Envoy for the same policies and backends.

The design's table of pins and waivers is compared in test_verification.py; here are the other ways in which a backend can be
right or wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import socket
import ssl
import subprocess
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.base.api.meta import Key
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.plan import probe, targets
from lasthop.edge.probe.result import ProbeResult
from tests.backends import Backend, backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG, OTHER_CA
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

PAST = (NOW - 9 * DAY, NOW - DAY)
EXPIRED_CA = Certificate("expired CA", ca=True, valid=PAST)
MIDDLE = Certificate("middle", CA, ca=True, valid=LONG)
EARLY_CA = Certificate("early CA", ca=True, valid=(NOW + DAY, NOW + 9 * DAY))
NAMES = dns("api.example")
SHALLOW_CA = Certificate("shallow CA", ca=True, valid=LONG, path_length=0)
SHALLOW_MIDDLE = Certificate("shallow middle", SHALLOW_CA, ca=True, valid=LONG, path_length=0)
SHALLOW_LEAF = Certificate("shallow leaf", SHALLOW_MIDDLE, sans=NAMES, valid=LONG)
DEEP_MIDDLE = Certificate("deep middle", SHALLOW_MIDDLE, ca=True, valid=LONG)
DEEP_LEAF = Certificate("deep leaf", DEEP_MIDDLE, sans=NAMES, valid=LONG)
NO_CA = Certificate("no CA", valid=LONG, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
ITSELF = Certificate("itself", sans=NAMES, valid=LONG)
GOOD = Certificate("good", CA, sans=NAMES, valid=LONG)
BELOW = Certificate("below", MIDDLE, sans=NAMES, valid=LONG)


@dataclasses.dataclass(frozen=True)
class Row:
    shows: Certificate
    fails: str = ""
    """The check that fails; none: the gateway connects."""
    above: tuple[Certificate, ...] = ()
    """What the backend sends besides."""
    cas: tuple[str, ...] = ("ca",)
    sans: tuple[Document, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion] | None = None
    ciphers: str = ""
    curve: str = ""
    """The only one that the backend takes; empty: OpenSSL's."""
    client: ssl.VerifyMode = ssl.CERT_NONE
    alpn: tuple[str, ...] = ()
    """What the backend picks from."""
    app_protocol: str = ""
    plaintext: bool = False
    nobody: bool = False
    """Nothing listens on the port."""
    behaves: tuple[tuple[str, Any], ...] = ()
    """Settings of the `Backend`."""
    status: int = 0
    """What Envoy answers; 0: 503 if a check fails, else 200."""
    warns: str = ""
    """The check that says "!": the gateway connects, and requests fail all the same."""
    says: str = ""
    """What the check that fails or warns says, or the remedy."""

    def context(self) -> ssl.SSLContext | None:
        if self.plaintext:
            return None
        context = self.shows.server_context(*self.above)
        context.verify_mode = self.client
        if self.alpn:
            context.set_alpn_protocols(list(self.alpn))
        if self.ciphers:
            context.set_ciphers(self.ciphers)
        if self.curve:
            context.set_ecdh_curve(self.curve)
        if self.versions:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version, context.maximum_version = self.versions
        return context


def named(*names: str) -> Certificate:
    return Certificate("names", CA, sans=dns(*names), valid=LONG)


def with_key(key: Any) -> Certificate:
    return Certificate("key", CA, sans=NAMES, valid=LONG, key=key)


def for_use(use: str, key: Any = None) -> Certificate:
    return Certificate("use", CA, sans=NAMES, valid=LONG, key=key, key_usage=use)


RSA = rsa.generate_private_key(65537, 2048)
BY_RSA = "AES128-GCM-SHA256"
"""The client encrypts a secret for the backend's key, which signs nothing."""
H1, H2 = ((("lasthop.dev/alpn", alpn),) for alpn in ("http/1.1", "h2"))
V1_1, V1_2 = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2
OLD = "ALL:@SECLEVEL=0"
ROWS = {
    "good": Row(GOOD),
    "unknown-ca": Row(Certificate("foreign", OTHER_CA, sans=NAMES, valid=LONG), "chain"),
    "self-signed": Row(Certificate("itself", sans=NAMES, valid=LONG), "chain"),
    "its-own-anchor": Row(ITSELF, cas=("itself",)),
    "expired": Row(Certificate("late", CA, sans=NAMES, valid=PAST), "dates"),
    "not-yet": Row(Certificate("early", CA, sans=NAMES, valid=(NOW + DAY, NOW + 9 * DAY)), "dates"),
    "expired-ca": Row(Certificate("orphan", EXPIRED_CA, sans=NAMES, valid=LONG), "dates", cas=("mixed",)),
    "two-cas": Row(GOOD, cas=("other-ca", "ca")),
    "system": Row(GOOD, cas=()),
    "system-unknown": Row(Certificate("foreign", OTHER_CA, sans=NAMES, valid=LONG), "chain", cas=()),
    "with-intermediate": Row(BELOW, above=(MIDDLE,)),
    "without-intermediate": Row(BELOW, "chain"),
    "intermediate-is-trusted": Row(BELOW, cas=("middle",)),
    "for-clients": Row(
        Certificate("c", CA, sans=NAMES, valid=LONG, usage=ExtendedKeyUsageOID.CLIENT_AUTH), "chain", says="serverAuth"
    ),
    "wrong-name": Row(named("other.example"), "names"),
    "upper-case": Row(named("API.Example")),
    "wildcard": Row(named("*.example")),
    "wildcard-inside": Row(named("a*.example"), "names"),
    "wildcard-two-deep": Row(named("*.api.example"), "names"),
    "no-names": Row(Certificate("api.example", CA, valid=LONG), "names", says="CN=api.example does not count"),
    "second-name": Row(named("other.example", "api.example")),
    "san-instead": Row(named("other.example"), sans=(docs.san("other.example"),)),
    "hostname-does-not-count": Row(named("api.example"), "names", sans=(docs.san("other.example"),)),
    "uri": Row(
        Certificate("u", CA, sans=(x509.UniformResourceIdentifier("spiffe://x/y"),), valid=LONG),
        sans=(docs.uri("spiffe://x/y"),),
    ),
    "other-uri": Row(
        Certificate("u", CA, sans=(x509.UniformResourceIdentifier("spiffe://x/Y"),), valid=LONG),
        "names",
        sans=(docs.uri("spiffe://x/y"),),
    ),
    "p-384": Row(with_key(ec.generate_private_key(ec.SECP384R1()))),
    "p-521": Row(with_key(ec.generate_private_key(ec.SECP521R1())), "tls"),
    "ed25519": Row(with_key(ed25519.Ed25519PrivateKey.generate()), "tls"),
    "rsa": Row(with_key(rsa.generate_private_key(65537, 2048))),
    "not-tls": Row(GOOD, "tls", plaintext=True),
    "tls-1-1": Row(GOOD, "tls", versions=(V1_1, V1_1), ciphers=OLD),
    "tls-1-1-permitted-without-a-suite": Row(
        GOOD,
        "tls",
        versions=(V1_1, V1_1),
        ciphers=OLD,
        options=(("lasthop.dev/min-tls-version", "1.1"),),
        says="lasthop.dev/cipher-suites: ECDHE-ECDSA-AES",
    ),
    "tls-1-1-permitted": Row(
        GOOD,
        versions=(V1_1, V1_1),
        ciphers=OLD,
        options=(("lasthop.dev/min-tls-version", "1.1"), ("lasthop.dev/cipher-suites", "ECDHE-ECDSA-AES256-SHA")),
    ),
    "nobody-listens": Row(GOOD, "connect", nobody=True, says="nothing listens"),
    "tls-1-2-and-1-3-is-wanted": Row(GOOD, "tls", versions=(V1_2, V1_2), options=(("lasthop.dev/min-tls-version", "1.3"),)),
    "tls-1-2": Row(GOOD, versions=(V1_2, V1_2)),
    "old-cipher": Row(
        GOOD,
        "tls",
        versions=(V1_2, V1_2),
        ciphers="ECDHE-ECDSA-AES256-SHA",
        says="lasthop.dev/cipher-suites: ECDHE-ECDSA-AES256-SHA",
    ),
    "old-cipher-permitted": Row(
        GOOD,
        versions=(V1_2, V1_2),
        ciphers="ECDHE-ECDSA-AES256-SHA",
        options=(("lasthop.dev/cipher-suites", "ECDHE-ECDSA-AES256-SHA"),),
    ),
    "client-certificate-demanded": Row(GOOD, "client certificate", client=ssl.CERT_REQUIRED),
    "client-certificate-demanded-1-2": Row(GOOD, "client certificate", client=ssl.CERT_REQUIRED, versions=(V1_2, V1_2)),
    "client-certificate-asked-for": Row(GOOD, client=ssl.CERT_OPTIONAL, warns="client certificate"),
    "client-certificate-or-400": Row(
        GOOD,
        client=ssl.CERT_OPTIONAL,
        behaves=(("client_or_400", True),),
        status=400,
        warns="client certificate",
        says="clientCertificateRef",
    ),
    "no-signatures": Row(for_use("key_agreement"), "tls", says="digitalSignature"),
    "no-signatures-1-2": Row(for_use("key_agreement"), "tls", versions=(V1_2, V1_2)),
    "signatures": Row(for_use("digital_signature")),
    "no-signatures-rsa": Row(for_use("key_encipherment", RSA), "tls", says="digitalSignature"),
    "no-signatures-rsa-1-2": Row(for_use("key_encipherment", RSA), "tls", versions=(V1_2, V1_2), says="digitalSignature"),
    "encipherment": Row(
        for_use("key_encipherment", RSA),
        versions=(V1_2, V1_2),
        ciphers=BY_RSA,
        options=(("lasthop.dev/cipher-suites", BY_RSA),),
    ),
    "no-encipherment": Row(
        for_use("digital_signature", RSA),
        "tls",
        versions=(V1_2, V1_2),
        ciphers=BY_RSA,
        options=(("lasthop.dev/cipher-suites", BY_RSA),),
        says="keyEncipherment",
    ),
    "alpn-h2": Row(GOOD, alpn=("h2",), options=H2),
    "h2-only": Row(GOOD, alpn=("h2",), behaves=(("h2_only", True),)),
    "h2-only-and-http-1-1-is-wanted": Row(
        GOOD, "alpn", alpn=("h2",), behaves=(("h2_only", True),), options=H1, says="lasthop.dev/alpn"
    ),
    "http-1-1-only-and-h2-is-wanted": Row(GOOD, alpn=("http/1.1",), options=H2, warns="alpn", says="HTTP/1.1 is used"),
    "no-alpn": Row(GOOD),
    "no-alpn-and-http-1-1-is-wanted": Row(GOOD, options=H1),
    "no-alpn-and-h2-is-wanted": Row(GOOD, options=H2, warns="alpn", says="HTTP/1.1 is used"),
    "no-alpn-and-h2c": Row(GOOD, "alpn", app_protocol="kubernetes.io/h2c", status=502, says="HTTP/2"),
    "curve": Row(GOOD, "tls", curve="secp384r1", says="option lasthop.dev/curves: P-384"),
    "curve-of-old-tls": Row(GOOD, "tls", curve="secp521r1", versions=(V1_2, V1_2), says="curve P-521"),
    "curve-permitted": Row(GOOD, curve="secp384r1", options=(("lasthop.dev/curves", "P-256,P-384"),)),
    "curve-of-envoy": Row(GOOD, curve="prime256v1"),
    "alpn-refused": Row(GOOD, "alpn", behaves=(("alert", 120),), says="lasthop.dev/alpn"),
    "sni-refused": Row(
        GOOD, "sni", behaves=(("alert", ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME),), says="hostname of the policy"
    ),
    "root-with-too-short-a-path": Row(SHALLOW_LEAF, cas=("shallow",), above=(SHALLOW_MIDDLE,)),
    "root-with-too-short-a-path-is-sent-too": Row(SHALLOW_LEAF, cas=("shallow",), above=(SHALLOW_MIDDLE, SHALLOW_CA)),
    "intermediate-with-too-short-a-path": Row(DEEP_LEAF, "chain", cas=("shallow",), above=(DEEP_MIDDLE, SHALLOW_MIDDLE)),
    "anchored-intermediate-with-too-short-a-path": Row(DEEP_LEAF, cas=("shallow-middle",), above=(DEEP_MIDDLE,)),
    "anchor-that-is-no-ca": Row(Certificate("below no CA", NO_CA, sans=NAMES, valid=LONG), cas=("no-ca",)),
    "not-yet-ca": Row(Certificate("early", EARLY_CA, sans=NAMES, valid=LONG), "dates", cas=("early",), says="clock"),
    "ip-only": Row(Certificate("ip", CA, sans=(x509.IPAddress(ipaddress.ip_address("127.0.0.1")),), valid=LONG), "names"),
}


@pytest.fixture(scope="module")
def verdicts(gateway: Lasthop) -> Iterator[tuple[Callable[[str], ProbeResult], dict[str, Backend]]]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", gateway.env["SSL_CERT_FILE"])
        backends = {
            name: stack.enter_context(backend(row.context(), name=name, **dict(row.behaves))) for name, row in ROWS.items()
        }
        unused = stack.enter_context(socket.socket())
        unused.bind(("127.0.0.1", 0))  # and does not listen
        ports = {name: unused.getsockname()[1] if row.nobody else backends[name].port for name, row in ROWS.items()}
        written = [document for name, row in ROWS.items() for document in _hop(f"probe-{name}", row, ports[name])]
        cas = {
            "ca": CA.pem,
            "other-ca": OTHER_CA.pem,
            "mixed": CA.pem + EXPIRED_CA.pem,
            "early": CA.pem + EARLY_CA.pem,
            "middle": MIDDLE.pem,
            "itself": ITSELF.pem,
            "shallow": SHALLOW_CA.pem,
            "shallow-middle": SHALLOW_MIDDLE.pem,
            "no-ca": NO_CA.pem,
        }
        bundles = (docs.config_map(f"probe-{name}", pem) for name, pem in cas.items())
        gateway.load("probe.yaml", *written, *bundles)
        engine = FolderView(gateway.folder).engine

        def probed(name: str) -> ProbeResult:
            key = Key("BackendTLSPolicy", "shop", f"probe-{name}")
            return probe(key, targets(engine, key, None))

        yield probed, backends


def _hop(name: str, row: Row, port: int) -> list[Document]:
    policy = docs.policy(
        name,
        "api.example",
        *(f"probe-{ca}" for ca in row.cas),
        sans=list(row.sans),
        options=dict(row.options),
    )
    service, *rest = docs.hop(name, port, policy)
    if row.app_protocol:
        service["spec"]["ports"][0]["appProtocol"] = row.app_protocol
    return [service, *rest]


@pytest.mark.parametrize("name", ROWS)
def test_the_verdict_is_what_envoy_does(
    gateway: Lasthop, verdicts: tuple[Callable[[str], ProbeResult], dict[str, Backend]], name: str
) -> None:
    probed, backends = verdicts
    row, report = ROWS[name], probed(name)
    requests = len(backends[name].requests)
    assert not requests, "nothing is sent after the handshake"
    assert gateway.get(f"probe-{name}").status == (row.status or (503 if row.fails else 200))
    (target,) = report.targets
    (tried,) = target.endpoints
    wrong = {state: [check for check in tried.checks if check.state == state] for state in ("fail", "warn")}
    assert [check.name for check in wrong["fail"]] == ([row.fails] if row.fails else []), tried.checks
    assert [check.name for check in wrong["warn"]] == ([row.warns] if row.warns else []), tried.checks
    assert report.passes is not bool(row.fails)
    assert all(check.remedy for checks in wrong.values() for check in checks)
    assert row.says in " ".join(f"{check.found} {check.remedy}" for checks in wrong.values() for check in checks)


def test_a_running_gateway_tries_its_backends_itself(
    gateway: Lasthop, verdicts: tuple[Callable[[str], ProbeResult], dict[str, Backend]]
) -> None:
    good = gateway.cli("probe", "shop/probe-good", "--dir", str(gateway.folder))
    assert good.returncode == 0, good.stderr
    assert "✓ chain" in good.stdout
    answered = _asked(gateway, "probe", "shop/probe-wrong-name", "-o", "json")
    assert answered.returncode == 1
    document = json.loads(answered.stdout)
    (names,) = (c for c in document["targets"][0]["endpoints"][0]["checks"] if c["name"] == "names")
    assert (document["passes"], names["state"]) == (False, "fail")
    assert "DNS other.example" in names["found"]
    _, backends = verdicts
    elsewhere = _asked(gateway, "probe", "shop/probe-wrong-name", f"127.0.0.1:{backends['good'].port}")
    assert elsewhere.returncode == 0, elsewhere.stdout


def _asked(gateway: Lasthop, *args: str) -> subprocess.CompletedProcess[str]:
    result = gateway.cli(*args)
    assert "Traceback" not in result.stderr
    return result


def test_only_the_socket_lets_others_be_tried(gateway: Lasthop) -> None:
    status, text = gateway.ask("/api/probe?namespace=shop&name=probe-good&address=127.0.0.1:1")
    assert (status, b"socket" in text) == (403, True)
