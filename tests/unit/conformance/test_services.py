from __future__ import annotations

from conformance.node.services import endpoints_of, ruleset
from tests.unit.conformance.objects import mk_service, mk_slice

PORT = {"name": "http", "port": 80, "protocol": "TCP"}


def rules(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "dnat ip to" in line]


def test_one_endpoint_is_translated_directly() -> None:
    assert rules(ruleset([mk_service()], [mk_slice("10.244.1.1")])) == [
        "ip daddr 10.96.1.1 tcp dport 80 dnat ip to 10.244.1.1:3000"
    ]


def test_several_endpoints_are_chosen_at_random() -> None:
    (rule,) = rules(ruleset([mk_service()], [mk_slice("10.244.1.2", "10.244.1.1")]))
    assert rule.endswith("numgen random mod 2 map { 0 : 10.244.1.1 . 3000, 1 : 10.244.1.2 . 3000 }")


def test_external_and_load_balancer_addresses_lead_to_the_pods_too() -> None:
    service = mk_service(externalIPs=["10.245.200.1"])
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "10.245.0.1"}]}}
    addresses = {rule.split()[2] for rule in rules(ruleset([service], [mk_slice("10.244.1.1")]))}
    assert addresses == {"10.96.1.1", "10.245.200.1", "10.245.0.1"}


def test_a_service_without_endpoints_has_no_rule() -> None:
    assert rules(ruleset([mk_service()], [])) == []


def test_ports_are_matched_by_name_and_not_by_number() -> None:
    assert endpoints_of([mk_slice("10.244.1.1", port_name="admin", port=80)], PORT) == []
    assert endpoints_of([mk_slice("10.244.1.1", port=8443)], PORT) == [("10.244.1.1", 8443)]


def test_unready_endpoints_get_no_traffic_unless_all_that_serve_are_ending() -> None:
    ready, ending = mk_slice("10.244.1.1"), mk_slice("10.244.1.2", ready=False, serving=True)
    assert endpoints_of([ready, ending], PORT) == [("10.244.1.1", 3000)]
    assert endpoints_of([ending], PORT) == [("10.244.1.2", 3000)]
    assert endpoints_of([mk_slice("10.244.1.3", ready=False)], PORT) == []


def test_headless_services_and_other_namespaces_have_no_rule() -> None:
    other = mk_slice("10.244.1.1")
    other["metadata"]["namespace"] = "bank"
    assert rules(ruleset([mk_service(ip="None")], [mk_slice("10.244.1.1")])) == []
    assert rules(ruleset([mk_service()], [other])) == []
