"""Every certificate that a backend may have, rightly or wrongly, against a BackendTLSPolicy: one gateway, one hop a case."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.backends import Backend, backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued, with_sans
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop, conditions

INTERMEDIATE = Certificate("an intermediate", CA, ca=True)
LEAF = Certificate("backend", INTERMEDIATE, sans=dns("api.example"))
SPIFFE = "spiffe://cluster.local/ns/shop/sa/api"


def uri_san(value: str) -> ssl.SSLContext:
    return with_sans(x509.UniformResourceIdentifier(value))


@dataclasses.dataclass(frozen=True)
class Case:
    context: ssl.SSLContext
    accepted: bool
    hostname: str = "api.example"
    cas: tuple[Any, ...] = ("ca",)
    sans: tuple[dict[str, Any], ...] = ()


def good(context: ssl.SSLContext, hostname: str = "api.example", *sans: dict[str, Any], cas: Any = ("ca",)) -> Case:
    return Case(context, True, hostname, cas, sans)


def bad(context: ssl.SSLContext, hostname: str = "api.example", *sans: dict[str, Any], cas: Any = ("ca",)) -> Case:
    return Case(context, False, hostname, cas, sans)


WILD = docs.san("*.x.example")

CASES = {
    # the chain
    "right-ca": good(issued()),
    "wrong-ca": bad(issued(issuer=OTHER_CA)),
    "self-signed": bad(issued(issuer=None)),
    "expired": bad(issued(valid=(NOW - 3 * DAY, NOW - DAY))),
    "not-yet-valid": bad(issued(valid=(NOW + DAY, NOW + 3 * DAY))),
    "intermediate-sent": good(LEAF.server_context(INTERMEDIATE)),
    "intermediate-missing": bad(LEAF.server_context()),
    "intermediate-as-anchor": good(LEAF.server_context(), cas=("intermediate",)),
    "client-usage-only": bad(issued(usage=ExtendedKeyUsageOID.CLIENT_AUTH)),
    "first-of-two-in-a-bundle": good(issued(), cas=("both",)),
    "second-of-two-in-a-bundle": good(issued(issuer=OTHER_CA), cas=("both",)),
    "none-of-two-in-a-bundle": bad(issued(issuer=Certificate("a third CA", ca=True)), cas=("both",)),
    "first-of-two-refs": good(issued(), cas=("ca", "other")),
    "second-of-two-refs": good(issued(issuer=OTHER_CA), cas=("ca", "other")),
    "good-ref-beside-a-missing-one": good(issued(), cas=("ca", "not-there")),
    "wrong-ca-beside-a-missing-one": bad(issued(issuer=OTHER_CA), cas=("ca", "not-there")),
    # where the CA comes from
    "ca-in-a-secret": good(issued(), cas=(docs.ref("ca", "Secret"),)),
    "wrong-ca-in-a-secret": bad(issued(issuer=OTHER_CA), cas=(docs.ref("ca", "Secret"),)),
    "ca-in-a-trust-bundle": good(issued(), cas=(docs.ref("ca", "ClusterTrustBundle", "certificates.k8s.io"),)),
    "wrong-ca-in-a-trust-bundle": bad(
        issued(issuer=OTHER_CA), cas=(docs.ref("ca", "ClusterTrustBundle", "certificates.k8s.io"),)
    ),
    "ca-in-the-system-store": good(issued(), cas=()),
    "ca-not-in-the-system-store": bad(issued(issuer=OTHER_CA), cas=()),
    # names, by the policy's hostname
    "wrong-name": bad(issued("old.example")),
    "one-of-many-names": good(issued("a.example", "api.example", "b.example")),
    "single-label": good(issued("backend"), "backend"),
    "longer-name": bad(issued("xapi.example")),
    "name-as-suffix": bad(issued("api.example.evil")),
    "dot-is-not-any-character": bad(issued("apixexample")),
    "wildcard-one-label-deep": good(issued("*.x.example"), "foo.x.example"),
    "wildcard-two-labels-deep": bad(issued("*.x.example"), "foo.bar.x.example"),
    "wildcard-for-the-bare-name": bad(issued("*.x.example"), "x.example"),
    "partial-wildcard": bad(issued("f*.x.example"), "foo.x.example"),
    "wildcard-inside": bad(issued("foo.*.example"), "foo.x.example"),
    "double-wildcard": bad(issued("*.*.example"), "foo.x.example"),
    "upper-case-san": good(issued("API.Example")),
    "upper-case-wildcard": good(issued("*.X.EXAMPLE"), "foo.x.example"),
    "common-name-only": bad(with_sans(cn="api.example")),
    "common-name-beside-another-san": bad(with_sans(x509.DNSName("old.example"), cn="api.example")),
    "ip-san-only": bad(with_sans(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))),
    "dns-san-that-is-an-ip": bad(issued("127.0.0.1")),
    "uri-san-that-is-the-name": bad(uri_san("api.example")),
    # names, by subjectAltNames
    "uri-san": good(uri_san(SPIFFE), "api.example", docs.uri(SPIFFE)),
    "uri-san-of-somebody-else": bad(uri_san(SPIFFE + "2"), "api.example", docs.uri(SPIFFE)),
    "uri-san-in-other-case": bad(uri_san(SPIFFE.replace("shop", "Shop")), "api.example", docs.uri(SPIFFE)),
    "uri-value-in-a-dns-san": bad(issued(SPIFFE), "api.example", docs.uri(SPIFFE)),
    "one-of-two-sans": good(issued("b.example"), "api.example", docs.uri(SPIFFE), docs.san("b.example")),
    "san-instead-of-hostname": good(issued("b.example"), "api.example", docs.san("b.example")),
    "hostname-does-not-authenticate-beside-sans": bad(issued("api.example"), "api.example", docs.san("b.example")),
    "policy-wildcard-and-the-same-wildcard": good(issued("*.x.example"), "api.example", WILD),
    "policy-wildcard-and-one-label": good(issued("a.x.example"), "api.example", WILD),
    "policy-wildcard-and-two-labels": bad(issued("a.b.x.example"), "api.example", WILD),
    "policy-wildcard-and-the-bare-name": bad(issued("x.example"), "api.example", WILD),
    "policy-wildcard-and-partial-wildcard": bad(issued("f*.x.example"), "api.example", WILD),
    "policy-wildcard-and-deeper-wildcard": bad(issued("*.b.x.example"), "api.example", WILD),
}


@pytest.fixture(scope="module")
def hops(gateway: Lasthop) -> Iterator[dict[str, Backend]]:
    with contextlib.ExitStack() as stack:
        backends = {name: stack.enter_context(backend(case.context, name=name)) for name, case in CASES.items()}
        written = [
            docs.config_map("ca", CA.pem),
            docs.config_map("other", OTHER_CA.pem),
            docs.config_map("both", f"two of them:\n{CA.pem}\n{OTHER_CA.pem}"),
            docs.config_map("intermediate", INTERMEDIATE.pem),
            docs.secret("ca", ca_crt=CA.pem, tls_crt=OTHER_CA.pem, tls_key=OTHER_CA.key_pem),
            docs.trust_bundle("ca", CA.pem),
        ]
        for name, case in CASES.items():
            policy = docs.policy(name, case.hostname, *case.cas, sans=list(case.sans))
            written += docs.hop(name, backends[name].port, policy)
        gateway.load("certificates.yaml", *written)
        yield backends


@pytest.mark.parametrize("name", CASES)
def test_a_backend_is_spoken_to_only_if_its_certificate_is_what_the_policy_asks(
    gateway: Lasthop, hops: dict[str, Backend], name: str
) -> None:
    case, backend = CASES[name], hops[name]
    answer = gateway.get(name)
    if case.accepted:
        assert answer == (200, name)
    else:
        assert answer == (503, BACKEND_FAILURE)
        assert backend.requests == []
    assert not backend.saw_plaintext
    assert {connection.sni for connection in backend.connections} == {case.hostname}


def test_the_matrix_breaks_no_policy(gateway: Lasthop, hops: dict[str, Backend]) -> None:
    """A refused certificate is the backend's fault; policies and routes stand as they are."""
    policies, routes = gateway.objects("BackendTLSPolicy"), gateway.objects("HTTPRoute")
    for name in CASES:
        policy, route = conditions(policies[f"shop/{name}"]), conditions(routes[f"shop/{name}"])
        assert policy["Accepted"][:2] == ("True", "Accepted"), name
        assert route["ResolvedRefs"][:2] == ("True", "ResolvedRefs"), name
        missing = "not-there" in CASES[name].cas
        assert policy["ResolvedRefs"][:2] == (("False", "InvalidCACertificateRef") if missing else ("True", "ResolvedRefs")), (
            name
        )
