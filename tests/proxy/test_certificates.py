"""Lasthop's own rules for certificates, one hop per case. tests/judge has the rules of the specification."""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends import Backend, backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop, conditions


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
    # where the CA comes from
    "ca-in-a-secret-with-a-key-pair": good(issued(), cas=(docs.ref("ca", "Secret"),)),
    "key-pair-in-a-secret-is-no-ca": bad(issued(issuer=OTHER_CA), cas=(docs.ref("ca", "Secret"),)),
    "ca-in-a-trust-bundle": good(issued(), cas=(docs.ref("ca", "ClusterTrustBundle", "certificates.k8s.io"),)),
    "wrong-ca-in-a-trust-bundle": bad(
        issued(issuer=OTHER_CA), cas=(docs.ref("ca", "ClusterTrustBundle", "certificates.k8s.io"),)
    ),
    "ca-in-the-system-store": good(issued(), cas=()),
    "ca-not-in-the-system-store": bad(issued(issuer=OTHER_CA), cas=()),
    "dns-san-that-is-an-ip": bad(issued("127.0.0.1")),
    # wildcards in subjectAltNames, which the specification does not mention
    "policy-wildcard-and-one-label": good(issued("a.x.example"), "api.example", WILD),
    "policy-wildcard-and-two-labels": bad(issued("a.b.x.example"), "api.example", WILD),
    "policy-wildcard-and-partial-wildcard": bad(issued("f*.x.example"), "api.example", WILD),
    "policy-wildcard-and-deeper-wildcard": bad(issued("*.b.x.example"), "api.example", WILD),
}


@pytest.fixture(scope="module")
def hops(gateway: Lasthop) -> Iterator[dict[str, Backend]]:
    with contextlib.ExitStack() as stack:
        backends = {name: stack.enter_context(backend(case.context, name=name)) for name, case in CASES.items()}
        written = [
            docs.config_map("ca", CA.pem),
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
