"""Addresses of a Gateway with routability, on a host and in a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.status.gateways import gateway_conditions, gateway_status
from lasthop.engine.plan.infrastructure import Infrastructure, RequestedAddresses
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.settings import IN_CLUSTER, INFRASTRUCTURE, PROXY, Settings
from tests.world import keyed, mk_class, mk_gateway

KEY = Key("Gateway", "a", "g")
CLUSTER, ELSEWHERE = {"routability": "Cluster"}, {"routability": "example.com/vpc"}


def settled(
    settings: Settings, *addresses: dict[str, str], around: Infrastructure | None = None
) -> tuple[Engine, GatewayPlan]:
    engine = Engine(settings)
    engine.apply(keyed(mk_class(), mk_gateway("a/g", addresses=list(addresses))))
    engine.settle()
    if around:
        INFRASTRUCTURE.set(engine.graph, around, KEY)
    gateway_plan = gateway(engine.graph, KEY)
    assert gateway_plan
    PROXY.set(engine.graph, ProxyState.serving(gateway_plan.listeners), KEY)
    for address in gateway_plan.addresses:
        BIND_RESULT.set(engine.graph, BindResult(), KEY, address, 80, "TCP")
    return engine, gateway_plan


def said(engine: Engine, gateway_plan: GatewayPlan) -> dict[str, str]:
    conditions = gateway_conditions(engine.graph, gateway_plan)
    return {c.type: c.reason for c in conditions if c.type in ("Accepted", "Programmed", "AddressesAssigned")}


def shown(engine: Engine) -> list[tuple[str, str]]:
    status = gateway_status(engine.graph, KEY)
    return [(address.value, address.routability) for address in status.addresses] if status else []


@pytest.mark.parametrize(
    ("addresses", "bound", "status"),
    [
        ([CLUSTER], ("127.0.0.1",), [("127.0.0.1", "Cluster")]),
        ([{**CLUSTER, "value": "::1"}], ("::1",), [("::1", "Cluster")]),
        ([{"value": "10.0.0.1"}, CLUSTER], ("10.0.0.1", "127.0.0.1"), [("10.0.0.1", ""), ("127.0.0.1", "Cluster")]),
        ([{}, CLUSTER], ("0.0.0.0",), [("0.0.0.0", ""), ("127.0.0.1", "Cluster")]),
    ],
)
def test_on_a_host_cluster_addresses_are_addresses_of_this_host(
    addresses: list[dict[str, str]], bound: tuple[str, ...], status: list[tuple[str, str]]
) -> None:
    engine, gateway_plan = settled(Settings(), *addresses)
    assert gateway_plan.addresses == bound
    assert shown(engine) == status
    assert said(engine, gateway_plan)["AddressesAssigned"] == "Assigned"


@pytest.mark.parametrize("address", [ELSEWHERE, {**CLUSTER, "value": "10.0.0.1"}, {**CLUSTER, "value": "0.0.0.0"}])
def test_an_address_for_other_hosts_is_never_bound_instead(address: dict[str, str]) -> None:
    engine, gateway_plan = settled(Settings(), address)
    assert gateway_plan.addresses == () and shown(engine) == []
    reasons = {"Accepted": "UnsupportedAddress", "Programmed": "AddressNotAssigned", "AddressesAssigned": "NotAssigned"}
    assert said(engine, gateway_plan) == reasons
    engine, gateway_plan = settled(Settings(), address, {"value": "10.0.0.2"})
    assert gateway_plan.addresses == ("10.0.0.2",)
    reasons = {"Accepted": "Accepted", "Programmed": "Programmed", "AddressesAssigned": "PartiallyAssigned"}
    assert said(engine, gateway_plan) == reasons


def test_in_a_cluster_it_is_for_the_services_to_give_them() -> None:
    exact = {**CLUSTER, "value": "10.96.0.7"}
    _, gateway_plan = settled(IN_CLUSTER, CLUSTER, {}, exact, ELSEWHERE)
    assert (gateway_plan.requested.outside, gateway_plan.requested.inside) == (("",), ("", "10.96.0.7"))
    assert gateway_plan.addresses == ("0.0.0.0",), "the Pod's own"
    assert len(gateway_plan.requested.unassigned) == 1


@pytest.mark.parametrize(
    ("around", "assigned", "status"),
    [
        ({"addresses": (("IPAddress", "10.96.0.9"),), "inside": ("10.96.0.9",)}, "Assigned", [("10.96.0.9", "Cluster")]),
        ({}, "NotAssigned", []),
    ],
)
def test_in_a_cluster_the_status_has_the_assigned_addresses(around: dict[str, Any], assigned: str, status: list[Any]) -> None:
    engine, gateway_plan = settled(IN_CLUSTER, CLUSTER, around=Infrastructure(**around))
    assert said(engine, gateway_plan)["AddressesAssigned"] == assigned
    assert shown(engine) == status


def test_in_a_cluster_pending_addresses_are_reported() -> None:
    given = Infrastructure((("IPAddress", "10.96.0.9"),), inside=("10.96.0.9",))
    engine, gateway_plan = settled(IN_CLUSTER, CLUSTER, {}, around=given)
    assert said(engine, gateway_plan)["AddressesAssigned"] == "PartiallyAssigned"


def test_without_a_routability_there_is_no_condition_about_it() -> None:
    engine, gateway_plan = settled(Settings(), {"value": "10.0.0.1"})
    assert gateway_plan.requested == RequestedAddresses(("10.0.0.1",))
    assert "AddressesAssigned" not in said(engine, gateway_plan)
