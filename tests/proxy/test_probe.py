"""`lasthop probe` says what Envoy does: the same policies and backends, the verdict of one against the other's answer.

The design's table of pins and waivers is compared in test_verification.py; here are the other ways in which a backend can be
right or wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import ssl
import subprocess
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.api.meta import Key
from lasthop.cli.folder import Folder
from lasthop.cli.probing import Probed, aims, probe
from tests.backends import Backend, backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, LONG, OTHER_CA
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

PAST = (NOW - 9 * DAY, NOW - DAY)
EXPIRED_CA = Certificate("expired CA", ca=True, valid=PAST)
MIDDLE = Certificate("middle", CA, ca=True, valid=LONG)
NAMES = dns("api.example")
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
    client: ssl.VerifyMode = ssl.CERT_NONE
    plaintext: bool = False

    def context(self) -> ssl.SSLContext | None:
        if self.plaintext:
            return None
        context = self.shows.server_context(*self.above)
        context.verify_mode = self.client
        if self.ciphers:
            context.set_ciphers(self.ciphers)
        if self.versions:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version, context.maximum_version = self.versions
        return context


def named(*names: str) -> Certificate:
    return Certificate("names", CA, sans=dns(*names), valid=LONG)


def with_key(key: Any) -> Certificate:
    return Certificate("key", CA, sans=NAMES, valid=LONG, key=key)


V1_1, V1_2 = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2
OLD = "ALL:@SECLEVEL=0"
ROWS = {
    "good": Row(GOOD),
    "unknown-ca": Row(Certificate("foreign", OTHER_CA, sans=NAMES, valid=LONG), "chain"),
    "self-signed": Row(Certificate("itself", sans=NAMES, valid=LONG), "chain"),
    "expired": Row(Certificate("late", CA, sans=NAMES, valid=PAST), "dates"),
    "not-yet": Row(Certificate("early", CA, sans=NAMES, valid=(NOW + DAY, NOW + 9 * DAY)), "dates"),
    "expired-ca": Row(Certificate("orphan", EXPIRED_CA, sans=NAMES, valid=LONG), "dates", cas=("mixed",)),
    "two-cas": Row(GOOD, cas=("other-ca", "ca")),
    "system": Row(GOOD, cas=()),
    "system-unknown": Row(Certificate("foreign", OTHER_CA, sans=NAMES, valid=LONG), "chain", cas=()),
    "with-intermediate": Row(BELOW, above=(MIDDLE,)),
    "without-intermediate": Row(BELOW, "chain"),
    "intermediate-is-trusted": Row(BELOW, cas=("middle",)),
    "for-clients": Row(Certificate("c", CA, sans=NAMES, valid=LONG, usage=ExtendedKeyUsageOID.CLIENT_AUTH), "chain"),
    "wrong-name": Row(named("other.example"), "names"),
    "upper-case": Row(named("API.Example")),
    "wildcard": Row(named("*.example")),
    "wildcard-inside": Row(named("a*.example"), "names"),
    "wildcard-two-deep": Row(named("*.api.example"), "names"),
    "no-names": Row(Certificate("api.example", CA, valid=LONG), "names"),
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
    "tls-1-2-and-1-3-is-wanted": Row(GOOD, "tls", versions=(V1_2, V1_2), options=(("lasthop.dev/min-tls-version", "1.3"),)),
    "tls-1-2": Row(GOOD, versions=(V1_2, V1_2)),
    "old-cipher": Row(GOOD, "tls", versions=(V1_2, V1_2), ciphers="ECDHE-ECDSA-AES256-SHA"),
    "old-cipher-permitted": Row(
        GOOD,
        versions=(V1_2, V1_2),
        ciphers="ECDHE-ECDSA-AES256-SHA",
        options=(("lasthop.dev/cipher-suites", "ECDHE-ECDSA-AES256-SHA"),),
    ),
    "client-certificate-demanded": Row(GOOD, "client certificate", client=ssl.CERT_REQUIRED),
    "client-certificate-demanded-1-2": Row(GOOD, "client certificate", client=ssl.CERT_REQUIRED, versions=(V1_2, V1_2)),
    "client-certificate-asked-for": Row(GOOD, client=ssl.CERT_OPTIONAL),
}


@pytest.fixture(scope="module")
def verdicts(gateway: Lasthop) -> Iterator[tuple[Callable[[str], Probed], dict[str, Backend]]]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", gateway.env["SSL_CERT_FILE"])
        backends = {name: stack.enter_context(backend(row.context(), name=name)) for name, row in ROWS.items()}
        written = [
            document
            for name, row in ROWS.items()
            for document in docs.hop(
                f"probe-{name}",
                backends[name].port,
                docs.policy(
                    f"probe-{name}",
                    "api.example",
                    *(f"probe-{ca}" for ca in row.cas),
                    sans=list(row.sans),
                    options=dict(row.options),
                ),
            )
        ]
        cas = {"ca": CA.pem, "other-ca": OTHER_CA.pem, "mixed": CA.pem + EXPIRED_CA.pem, "middle": MIDDLE.pem}
        bundles = (docs.config_map(f"probe-{name}", pem) for name, pem in cas.items())
        gateway.load("probe.yaml", *written, *bundles)
        engine = Folder(gateway.folder).engine

        def probed(name: str) -> Probed:
            key = Key("BackendTLSPolicy", "shop", f"probe-{name}")
            return probe(key, aims(engine, key, None))

        yield probed, backends


@pytest.mark.parametrize("name", ROWS)
def test_the_verdict_is_what_envoy_does(
    gateway: Lasthop, verdicts: tuple[Callable[[str], Probed], dict[str, Backend]], name: str
) -> None:
    probed, backends = verdicts
    found = probed(name)
    requests = len(backends[name].requests)
    assert not requests, "nothing is sent after the handshake"
    assert gateway.get(f"probe-{name}").status == (503 if ROWS[name].fails else 200)
    (target,) = found.targets
    (tried,) = target.endpoints
    assert [check.name for check in tried.checks if check.state == "fail"] == ([ROWS[name].fails] if ROWS[name].fails else [])
    assert found.passes is not bool(ROWS[name].fails)
    assert all(check.remedy for check in tried.checks if check.state == "fail")


def test_a_running_gateway_tries_its_backends_itself(
    gateway: Lasthop, verdicts: tuple[Callable[[str], Probed], dict[str, Backend]]
) -> None:
    good = gateway.cli("probe", "shop/probe-good", "--dir", str(gateway.folder))
    assert good.returncode == 0, good.stderr
    assert "✓ chain" in good.stdout
    answered = _asked(gateway, "probe", "shop/probe-wrong-name", "-o", "json")
    assert answered.returncode == 1
    found = json.loads(answered.stdout)
    (names,) = (c for c in found["targets"][0]["endpoints"][0]["checks"] if c["name"] == "names")
    assert (found["passes"], names["state"]) == (False, "fail")
    assert "DNS other.example" in names["found"]
    _, backends = verdicts
    elsewhere = _asked(gateway, "probe", "shop/probe-wrong-name", f"127.0.0.1:{backends['good'].port}")
    assert elsewhere.returncode == 0, elsewhere.stdout


def _asked(gateway: Lasthop, *args: str) -> subprocess.CompletedProcess[str]:
    found = gateway.cli(*args)
    assert "Traceback" not in found.stderr
    return found


def test_only_the_socket_lets_others_be_tried(gateway: Lasthop) -> None:
    status, text = gateway.ask("/api/probe?namespace=shop&name=probe-good&address=127.0.0.1:1")
    assert (status, b"socket" in text) == (403, True)
