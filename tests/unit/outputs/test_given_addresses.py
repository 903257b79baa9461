"""The status of addresses that a Gateway in a cluster requests."""

from __future__ import annotations

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.status import GatewayStatus
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.settings import IN_CLUSTER, INFRASTRUCTURE, PROXY
from tests.snapshot import settled
from tests.world import keyed, mk_class, mk_gateway

WEB = Key("Gateway", "edge", "web")
GOOD, BAD = "10.0.0.1", "2001:db8::1"
REMEDY = "give the Gateway addresses that the Service's load balancer can assign"


def programmed(wanted: list[str], given: tuple[str, ...], missing: tuple[str, ...]) -> str:
    addresses = [{"type": "IPAddress", "value": address} for address in wanted]
    engine, snapshot = settled(keyed(mk_class(), mk_gateway("edge/web", addresses=addresses)), settings=IN_CLUSTER)
    around = Infrastructure(tuple(("IPAddress", address) for address in given), missing)
    INFRASTRUCTURE.set(engine.graph, around, WEB)
    PROXY.set(engine.graph, ProxyState(connected=True, ports=frozenset({80})), WEB)
    snapshot.take(engine.settle())
    status = snapshot.status[WEB]
    assert isinstance(status, GatewayStatus)
    return next(f"{c.reason}: {c.message}".rstrip(": ") for c in status.conditions if c.type == "Programmed")


@pytest.mark.parametrize(
    ("wanted", "given", "missing", "expected"),
    [
        ([], (), (), "AddressNotAssigned: its Service has no address yet"),
        ([GOOD, BAD], (), (GOOD, BAD), f"AddressNotAssigned: not assigned yet: {GOOD}, {BAD}"),
        ([GOOD, BAD], (GOOD,), (BAD,), f"AddressNotUsable: not assigned: {BAD}; {REMEDY}"),
        ([GOOD, "2001:DB8:0::1"], (GOOD,), (BAD,), f"AddressNotUsable: not assigned: {BAD}; {REMEDY}"),
        ([GOOD], (GOOD,), (), "Programmed"),
    ],
)
def test_an_address_is_not_usable_only_if_others_were_given(
    wanted: list[str], given: tuple[str, ...], missing: tuple[str, ...], expected: str
) -> None:
    assert programmed(wanted, given, missing) == expected


def test_an_address_that_is_no_longer_requested_is_not_missed() -> None:
    """The Gateway is read before its Services have followed."""
    assert programmed([GOOD], (GOOD,), (BAD,)) == "Programmed"
    assert programmed([GOOD], (), (BAD, GOOD)) == f"AddressNotAssigned: not assigned yet: {GOOD}"
