from __future__ import annotations

from typing import Any

from conformance.api import Object
from conformance.node.addresses import Addresses
from tests.unit.conformance.objects import mk_service


def mk_balanced(name: str, **spec: Any) -> Object:
    service = mk_service(name, type="LoadBalancer", **spec)
    service["metadata"]["uid"] = f"uid-{name}"
    return service


def given(addresses: Addresses, *services: Object) -> dict[str, str]:
    return {service["metadata"]["name"]: address for service, address in addresses.assign(services)}


def test_each_service_gets_an_address_of_its_own_once() -> None:
    addresses = Addresses()
    a, b = mk_balanced("a"), mk_balanced("b")
    assert given(addresses, a, b) == {"a": "10.245.0.1", "b": "10.245.0.2"}
    assert given(addresses, a, b) == {}
    assert given(addresses, mk_balanced("c")) == {"c": "10.245.0.3"}, "what has been given is not given again"


def test_a_requested_address_is_assigned_if_it_is_in_the_range() -> None:
    wanted, foreign = mk_balanced("a", loadBalancerIP="10.245.200.1"), mk_balanced("b", loadBalancerIP="203.0.113.1")
    assert given(Addresses(), wanted, foreign) == {"a": "10.245.200.1"}


def test_an_address_that_another_service_has_is_given_when_that_one_is_gone() -> None:
    addresses = Addresses()
    first, second = (mk_balanced(name, loadBalancerIP="10.245.200.1") for name in ("a", "b"))
    assert given(addresses, first, second) == {"a": "10.245.200.1"}
    assert given(addresses, second) == {"b": "10.245.200.1"}


def test_services_of_other_types_and_of_other_load_balancers_get_none() -> None:
    inside = mk_balanced("a", loadBalancerClass="example.com/inside")
    local = mk_balanced("b")
    local["spec"]["type"] = "ClusterIP"
    assert given(Addresses(), inside, local) == {}
