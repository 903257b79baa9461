"""Policies that cannot be fulfilled: 500, no connection at all, a status with the reason, and recovery after a correction."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from tests.backends import Backend, backend, until
from tests.certificates import DAY, NOW, Certificate
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.documents import Document
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop

GARBAGE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@dataclasses.dataclass(frozen=True)
class Case:
    policy: Callable[[str], Document]
    """For a Service of that name."""
    more: tuple[Document, ...] = ()
    accepted: str = "NoValidCACertificate"
    resolved: str = "InvalidCACertificateRef"
    says: tuple[str, ...] = ()


def by(*refs: str | Document, hostname: str = "api.example", **settings) -> Callable[[str], Document]:  # type: ignore[no-untyped-def]
    return lambda name: docs.policy(name, hostname, *refs, **settings)


CASES = {
    "missing-config-map": Case(by("not-there"), says=("ConfigMap shop/not-there does not exist",)),
    "missing-secret": Case(by(docs.ref("not-there", "Secret")), says=("Secret shop/not-there does not exist",)),
    "missing-trust-bundle": Case(
        by(docs.ref("not-there", "ClusterTrustBundle", "certificates.k8s.io")),
        says=("ClusterTrustBundle not-there does not exist",),
    ),
    "no-such-key": Case(
        by("other-key"),
        (docs.obj("v1", "ConfigMap", "other-key", data={"bundle.pem": CA.pem}),),
        says=("ConfigMap shop/other-key has no key ca.crt",),
    ),
    "empty-bundle": Case(by("empty"), (docs.config_map("empty", ""),), says=("ca.crt of ConfigMap shop/empty is empty",)),
    "garbage": Case(by("garbage"), (docs.config_map("garbage", GARBAGE),), says=("1 of 1",)),
    "garbage-among-good": Case(by("half-garbage"), (docs.config_map("half-garbage", CA.pem + GARBAGE),), says=("2 of 2",)),
    "cut-off": Case(by("cut-off"), (docs.config_map("cut-off", CA.pem[:-40]),), says=("truncated",)),
    "private-key-only": Case(
        by("only-key"), (docs.config_map("only-key", CA.key_pem),), says=("no PEM certificate but a private key",)
    ),
    "key-of-a-secret-is-not-a-ca": Case(
        by(docs.ref("pair", "Secret")),
        (docs.key_pair("pair", CA),),
        says=("Secret shop/pair has no key ca.crt",),
    ),
    "expired-ca": Case(
        by("expired"),
        (docs.config_map("expired", Certificate("of old", ca=True, valid=(NOW - 9 * DAY, NOW - DAY)).pem),),
        resolved="ExpiredCertificate",
        says=("has expired",),
    ),
    "unknown-kind": Case(
        by(docs.ref("x", "Bundle", "trust.example")), resolved="InvalidKind", says=("kind Bundle of group 'trust.example'",)
    ),
    "unknown-kind-beside-a-good-ref": Case(
        by("invalid-ca", docs.ref("x", "Bundle", "trust.example")), accepted="Invalid", resolved="InvalidKind"
    ),
    "unknown-option": Case(
        by("invalid-ca", options={"lasthop.dev/min-tls": "1.3"}),
        accepted="Invalid",
        resolved="",
        says=("option lasthop.dev/min-tls is unknown", "min-tls-version"),
    ),
    "bad-option-value": Case(
        by("invalid-ca", options={"lasthop.dev/min-tls-version": "1.4"}), accepted="Invalid", resolved="", says=("'1.4'",)
    ),
    "ip-as-hostname": Case(
        by("invalid-ca", hostname="127.0.0.1"), accepted="Invalid", resolved="", says=("127.0.0.1 is an IP address",)
    ),
    "ip-as-san": Case(
        by("invalid-ca", sans=[docs.san("127.0.0.1")]), accepted="Invalid", resolved="", says=("127.0.0.1 is an IP address",)
    ),
}
COMMON = docs.config_map("invalid-ca", CA.pem)


@pytest.fixture(scope="module")
def hops(gateway: Lasthop) -> Iterator[dict[str, Backend]]:
    with contextlib.ExitStack() as stack:
        backends = {name: stack.enter_context(backend(issued("api.example"), name=name)) for name in CASES}
        gateway.write("invalid-common.yaml", COMMON)
        for name, case in CASES.items():
            gateway.write(f"invalid-{name}.yaml", *docs.hop(name, backends[name].port, case.policy(name)), *case.more)
        gateway.settle()
        yield backends


@pytest.mark.parametrize("name", CASES)
def test_an_invalid_policy_answers_500_without_a_connection_to_the_backend(
    gateway: Lasthop, hops: dict[str, Backend], name: str
) -> None:
    for headers in ({}, {"connection": "upgrade", "upgrade": "websocket"}):
        assert gateway.get(name, headers=headers) == (500, BACKEND_FAILURE)
    assert hops[name].connections == []


@pytest.mark.parametrize("name", CASES)
def test_the_status_of_policy_and_route_reports_the_problem(gateway: Lasthop, hops: dict[str, Backend], name: str) -> None:
    case = CASES[name]
    policy, route = gateway.conditions("BackendTLSPolicy", name), gateway.conditions("HTTPRoute", name)
    assert policy["Accepted"][:2] == ("False", case.accepted)
    assert policy["ResolvedRefs"][:2] == (("False", case.resolved) if case.resolved else ("True", "ResolvedRefs"))
    assert route["Accepted"][:2] == ("True", "Accepted")
    assert route["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
    assert f"BackendTLSPolicy shop/{name}" in route["ResolvedRefs"][2]
    for words in case.says:
        assert words in policy["Accepted"][2]
        assert words in route["ResolvedRefs"][2]
    assert [f for f in gateway.findings() if f["object"] == f"BackendTLSPolicy shop/{name}" and f["severity"] == "error"]


@pytest.mark.parametrize("name", ["missing-config-map", "unknown-kind", "unknown-option", "ip-as-hostname"])
def test_a_corrected_policy_serves(gateway: Lasthop, hops: dict[str, Backend], name: str) -> None:
    assert gateway.get(name).status == 500
    gateway.write(f"invalid-{name}.yaml", *docs.hop(name, hops[name].port, docs.policy(name, "api.example", "invalid-ca")))
    gateway.until_status(name, 200)
    until(lambda: gateway.conditions("HTTPRoute", name)["ResolvedRefs"][0] == "True")
    assert gateway.conditions("BackendTLSPolicy", name)["Accepted"][0] == "True"
    assert not hops[name].saw_plaintext


def test_a_config_map_that_appears_later_mends_its_policy(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    gateway.load("later.yaml", *docs.hop("later", served.port, docs.policy("later", "api.example", "later-ca")))
    assert gateway.get("later").status == 500
    gateway.write("later-ca.yaml", docs.config_map("later-ca", CA.pem))
    gateway.until_status("later", 200)
    (gateway.folder / "later-ca.yaml").unlink()
    gateway.until_status("later", 500)
    assert not served.saw_plaintext


def test_a_mistyped_port_of_a_verified_hop_answers_500_and_never_plaintext(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    served = serve(issued())
    ca, policy = docs.config_map("typo-ca", CA.pem), docs.policy("typo", "api.example", "typo-ca")
    gateway.load("typo.yaml", ca, *docs.hop("typo", served.port, policy))
    gateway.until_status("typo", 200)
    policy["spec"]["targetRefs"][0]["sectionName"] = "htps"
    gateway.write("typo.yaml", ca, *docs.hop("typo", served.port, policy))
    gateway.until_status("typo", 500)
    assert "did you mean https?" in gateway.conditions("HTTPRoute", "typo")["ResolvedRefs"][2]
    assert not served.saw_plaintext


def test_a_port_that_loses_its_policy_is_an_error_of_its_route_until_plaintext_is_meant(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    served = serve(issued())
    ca, policy = docs.config_map("lost-ca", CA.pem), docs.policy("lost", "api.example", "lost-ca")
    gateway.load("lost.yaml", ca, *docs.hop("lost", served.port, policy))
    gateway.until_status("lost", 200)
    policy["spec"]["targetRefs"][0]["name"] = "lots"
    gateway.write("lost.yaml", ca, *docs.hop("lost", served.port, policy))

    def status() -> str:
        return gateway.command("status", "httproute", "shop/lost").stdout

    until(lambda: "NoLongerVerified" in status())
    assert "backend shop/lost:443 is plaintext now, because BackendTLSPolicy shop/lost names Service shop/lots" in status()
    assert "NoLongerVerified" in gateway.log
    assert (
        "Service shop/lots does not exist; did you mean lost?" in gateway.command("status", "backendtlspolicy", "lost").stdout
    )
    service, *rest = docs.hop("lost", served.port, policy)
    service["spec"]["ports"][0]["appProtocol"] = "http"
    gateway.write("lost.yaml", ca, service, *rest)
    until(lambda: "NoLongerVerified" not in status())
