"""Backends that are found by name, and hops that come into being: the policy holds from the first connection on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.documents import Document
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop


def external_name(name: str, port: int) -> list[Document]:
    ports = [{"name": "https", "port": 443, "targetPort": port}]
    return [docs.obj("v1", "Service", name, spec={"type": "ExternalName", "externalName": "localhost", "ports": ports})]


def fqdn_slice(name: str, port: int) -> list[Document]:
    (endpoint_slice,) = docs.endpoints(name, port)
    return [docs.service(name), {**endpoint_slice, "addressType": "FQDN", "endpoints": [{"addresses": ["localhost"]}]}]


@pytest.mark.parametrize("found_by", [external_name, fqdn_slice])
def test_a_backend_found_by_dns_is_verified_by_the_policys_name(
    gateway: Lasthop, serve: Callable[..., Backend], found_by: Callable[[str, int], list[Document]]
) -> None:
    served = serve(issued())
    name = found_by.__name__.replace("_", "-")

    def policy(hostname: str) -> None:
        gateway.write(f"{name}-policy.yaml", docs.policy(name, hostname, f"{name}-ca"))

    policy("api.example")
    gateway.load(
        f"{name}.yaml",
        docs.config_map(f"{name}-ca", CA.pem),
        *found_by(name, served.port),
        docs.route(name, docs.to(name)),
    )
    gateway.until_status(name, 200)
    assert served.last.sni == "api.example", "not the name that was looked up"
    policy("wrong.example")
    gateway.until_status(name, 503)
    assert {gateway.get(name) for _ in range(10)} == {(503, BACKEND_FAILURE)}
    policy("api.example")
    gateway.until_status(name, 200)


def test_a_hop_that_comes_with_its_policy_is_never_plaintext(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    """For any order in which its parts reach Envoy: the backend would accept plaintext."""
    for number in range(5):
        served = serve(issued(), plaintext_too=True, name=f"newborn-{number}")
        name = served.name
        policy, ca = docs.policy(name, "api.example", f"{name}-ca"), docs.config_map(f"{name}-ca", CA.pem)
        gateway.write(f"{name}.yaml", *docs.hop(name, served.port), policy, ca)
        seen: list[int] = []

        def ask(name: str = name, seen: list[int] = seen) -> bool:
            seen.append(gateway.get(name).status)
            return seen[-1] == 200

        until(ask)
        assert set(seen) <= {404, 200}
        assert not served.saw_plaintext


def test_a_policy_that_comes_before_its_service_waits_for_it(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued(), plaintext_too=True)
    ca = docs.config_map("early-ca", CA.pem)
    gateway.load("early-policy.yaml", ca, docs.policy("early", "api.example", "early-ca"))
    gateway.load("early-route.yaml", docs.route("early", docs.to("early")))
    assert gateway.get("early") == (500, BACKEND_FAILURE)
    assert gateway.conditions("HTTPRoute", "early")["ResolvedRefs"][:2] == ("False", "BackendNotFound")
    gateway.write("early.yaml", docs.service("early"), *docs.endpoints("early", served.port))
    gateway.until_status("early", 200)
    assert not served.saw_plaintext
