"""Shares of a rule's traffic, and references across namespaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.lasthop import BACKEND_FAILURE, Answer, Lasthop


def test_an_invalid_backend_fails_its_share_of_the_traffic_and_no_more(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    good, invalid = serve(issued(), name="good"), serve(issued(), name="invalid")
    gateway.load(
        "weights.yaml",
        docs.config_map("weights-ca", CA.pem),
        *(docs.service("share-good"), *docs.endpoints("share-good", good.port)),
        *(docs.service("share-invalid"), *docs.endpoints("share-invalid", invalid.port)),
        docs.policy("share-good", "api.example", "weights-ca"),
        docs.policy("share-invalid", "api.example", "not-there"),
        docs.route("weights", docs.to("share-good", weight=3), docs.to("share-invalid", weight=1)),
    )
    answers = Counter(gateway.get("weights") for _ in range(200))
    assert answers.keys() == {(200, "good"), (500, BACKEND_FAILURE)}
    assert 20 <= answers[Answer(500, BACKEND_FAILURE)] <= 90, "50 expected, six standard deviations each way"
    assert invalid.connections == []
    resolved = gateway.conditions("HTTPRoute", "weights")["ResolvedRefs"]
    assert resolved[:2] == ("False", "InvalidBackendTLS")
    assert "share-invalid" in resolved[2] and "share-good" not in resolved[2]


def test_a_backend_of_weight_zero_gets_nothing(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served, unused = serve(issued(), name="used"), serve(issued(), name="unused")
    gateway.load(
        "zero.yaml",
        docs.config_map("zero-ca", CA.pem),
        *docs.hop("zero-used", served.port, docs.policy("zero-used", "api.example", "zero-ca")),
        *docs.hop("zero-unused", unused.port, docs.policy("zero-unused", "api.example", "zero-ca")),
        docs.route("zero", docs.to("zero-used", weight=1), docs.to("zero-unused", weight=0)),
    )
    assert {gateway.get("zero") for _ in range(20)} == {(200, "used")}
    assert unused.connections == []


def test_a_service_in_another_namespace_needs_a_grant(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    route = docs.route("team/granted", docs.to("api", namespace="vault"))
    gateway.load(
        "grant.yaml",
        *(docs.namespace("vault"), docs.namespace("team")),
        *(docs.service("vault/api"), *docs.endpoints("vault/api", served.port)),
        *(docs.config_map("vault/ca", CA.pem), docs.policy("vault/api", "api.example", "ca")),
        route,
    )
    assert gateway.get("granted") == (500, BACKEND_FAILURE)
    assert served.connections == []
    resolved = gateway.conditions("HTTPRoute", "team/granted")["ResolvedRefs"]
    assert resolved[:2] == ("False", "RefNotPermitted")
    assert "ReferenceGrant" in resolved[2] and "vault" in resolved[2]

    gateway.write("grant-itself.yaml", docs.grant("vault/routes", "HTTPRoute", "team", "Service"))
    gateway.until_status("granted", 200)
    until(lambda: gateway.conditions("HTTPRoute", "team/granted")["ResolvedRefs"][0] == "True")
    assert gateway.conditions("BackendTLSPolicy", "vault/api")["Accepted"][0] == "True"

    (gateway.folder / "grant-itself.yaml").unlink()
    gateway.until_status("granted", 500)


@pytest.mark.parametrize("where", ["shop", "team2"])
def test_only_the_policy_and_the_ca_beside_the_service_count(
    gateway: Lasthop, serve: Callable[..., Backend], where: str
) -> None:
    """Gateway in one namespace, route in another, Service, policy and CA in a third: objects of the same name elsewhere are
    no part of it."""
    right = serve(issued("api.example"), name="right")
    untrusted = serve(issued("api.example", issuer=OTHER_CA), name="untrusted")
    third = f"vault-{where}"
    name = f"third-{where}"
    gateway.load(
        f"{name}.yaml",
        *(docs.namespace(third), docs.namespace("team2")) if where == "team2" else (docs.namespace(third),),
        *(docs.service(f"{third}/api"), *docs.endpoints(f"{third}/api", right.port)),
        *(docs.service(f"{third}/bad"), *docs.endpoints(f"{third}/bad", untrusted.port)),
        docs.config_map(f"{third}/third-ca", CA.pem),
        docs.policy(f"{third}/api", "api.example", "third-ca"),
        docs.policy(f"{third}/bad", "api.example", "third-ca"),
        docs.grant(f"{third}/routes", "HTTPRoute", "team2", "Service"),
        docs.route(f"team2/{name}", docs.to("api", namespace=third)),
        docs.route(f"team2/{name}-bad", docs.to("bad", namespace=third)),
    )
    assert gateway.get(name) == (200, "right")
    assert gateway.get(f"{name}-bad") == (503, BACKEND_FAILURE)
    gateway.load(
        f"{name}-elsewhere.yaml",
        docs.config_map(f"{where}/third-ca", OTHER_CA.pem),
        *(docs.service(f"{where}/api"), docs.service(f"{where}/bad")),
        docs.policy(f"{where}/api", "wrong.example", "third-ca", created="2020-01-01T00:00:00Z"),
        docs.policy(f"{where}/bad", "api.example", "third-ca", created="2020-01-01T00:00:00Z"),
    )
    assert gateway.get(name) == (200, "right")
    assert gateway.get(f"{name}-bad") == (503, BACKEND_FAILURE)
    assert gateway.object("BackendTLSPolicy", f"{where}/api").get("status") is None, "no Gateway reaches it"
    assert right.last.sni == "api.example"
    (gateway.folder / f"{name}-elsewhere.yaml").unlink()


def test_the_older_of_two_policies_applies_even_if_it_is_invalid(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    gateway.load(
        "two.yaml",
        docs.config_map("two-ca", CA.pem),
        *docs.hop("two", served.port),
        docs.policy("two-new", "api.example", "two-ca", service="two", created="2026-02-01T00:00:00Z"),
        docs.policy("two-old", "api.example", "not-there", service="two", created="2026-01-01T00:00:00Z"),
    )
    assert gateway.get("two").status == 500
    assert served.connections == []
    loser = gateway.conditions("BackendTLSPolicy", "two-new")["Accepted"]
    assert loser[:2] == ("False", "Conflicted")
    assert "shop/two-old" in loser[2]


def test_a_policy_for_one_port_leaves_the_other_port_alone(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    secure, plain = serve(issued(), name="secure"), serve(None, name="plain")
    ports = ({"name": "https", "port": 443}, {"name": "plain", "port": 80})
    policy = docs.policy("ports", "api.example", "ports-ca")
    policy["spec"]["targetRefs"][0]["sectionName"] = "https"
    gateway.load(
        "ports.yaml",
        docs.config_map("ports-ca", CA.pem),
        docs.service("ports", *ports),
        *docs.endpoints("ports", secure.port),
        *docs.endpoints("ports-plain", plain.port, port_name="plain", service="ports"),
        policy,
        docs.route("ports-secure", docs.to("ports", 443)),
        docs.route("ports-plain", docs.to("ports", 80)),
    )
    assert gateway.get("ports-secure") == (200, "secure")
    assert gateway.get("ports-plain") == (200, "plain")
    assert secure.last.sni == "api.example"
