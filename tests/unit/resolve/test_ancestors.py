"""A policy's status has 16 entries, including those of other controllers: a Gateway without an entry fails closed."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import AncestorReference, BackendTLSPolicy, ForeignPolicyStatus, PolicyAncestorStatus
from lasthop.base.api.status import GatewayStatus
from lasthop.engine.engine import Engine
from tests.snapshot import Snapshot, settled
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service


def world(foreign: int) -> tuple[Engine, Snapshot]:
    """Two Gateways, the older one first, reach a policy in whose status others have left so many entries."""
    policy = mk_policy("a/p", "api", "api.example", ["ca"])
    assert isinstance(policy, BackendTLSPolicy)
    entries = tuple(PolicyAncestorStatus(AncestorReference(f"other-{n}"), "foreign.example/x") for n in range(foreign))
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/first"),
            mk_gateway("b/second"),
            mk_service("a/api"),
            mk_config_map("a/ca", ca_pem("good")),
            msgspec.structs.replace(policy, status=ForeignPolicyStatus(entries)),
            mk_route("a/one", "a/first", [{"name": "api", "port": 443}]),
            mk_route("a/two", "b/second", [{"name": "api", "port": 443}]),
        )
    )


def hops(snapshot: Snapshot) -> set[str]:
    return {name for _, name in snapshot.clusters() if name.endswith("/auto")}


def entries_of(snapshot: Snapshot) -> list[str]:
    status = snapshot.status.get(Key("BackendTLSPolicy", "a", "p"))
    return [entry.ancestor_ref.name for entry in status.ancestors] if status else []  # type: ignore[union-attr]


def test_with_room_for_both_both_are_served_and_have_an_entry() -> None:
    _, snapshot = world(foreign=14)
    assert hops(snapshot) == {"a/first/a/api/443/auto", "b/second/a/api/443/auto"}
    assert entries_of(snapshot) == ["first", "second"]


def test_a_gateway_without_a_status_entry_fails_closed_and_its_route_reports_why() -> None:
    engine, snapshot = world(foreign=15)
    assert hops(snapshot) == {"a/first/a/api/443/auto"}
    assert entries_of(snapshot) == ["first"]
    status = snapshot.status[Key("HTTPRoute", "a", "two")]
    resolved = next(c for c in status.parents[0].conditions if c.type == "ResolvedRefs")  # type: ignore[union-attr]
    assert (resolved.status, resolved.reason) == ("False", "InvalidBackendTLS")
    assert "has no free entry" in resolved.message
    (finding,) = (
        finding for finding in engine.findings() if "its status has no free entry for Gateway b/second" in finding.message
    )
    assert finding.severity == "error"
    assert finding.remedy == "Use a second Service for the same backend at that Gateway, with a separate policy."
    policy = snapshot.status[Key("BackendTLSPolicy", "a", "p")]
    conditions = {c.type: (c.status, c.reason, c.message) for c in policy.ancestors[0].conditions}  # type: ignore[union-attr]
    assert conditions["Accepted"][0] == "True"
    message = "this status has no free entry for Gateway b/second, so connections from there fail"
    assert conditions["PartiallyInvalid"] == ("True", "Invalid", message)


def test_a_status_full_of_other_entries_serves_no_gateway() -> None:
    _, snapshot = world(foreign=16)
    assert hops(snapshot) == set()
    assert entries_of(snapshot) == []


def full(snapshot: Snapshot, gateway: Key) -> list[str]:
    """Returns the Gateway's condition about policies without room for its entry."""
    status = snapshot.status[gateway]
    assert isinstance(status, GatewayStatus)
    return [c.message for c in status.conditions if c.type == "PolicyStatusFull"]


def test_the_gateway_itself_lists_policies_without_an_entry_for_it() -> None:
    for foreign, lacking in ((14, ()), (15, ("second",)), (16, ("first", "second"))):
        _, snapshot = world(foreign)
        for gateway in (Key("Gateway", "a", "first"), Key("Gateway", "b", "second")):
            status_full = "the status of BackendTLSPolicy a/p has no free entry for this Gateway"
            message = f"{status_full}, so requests to their backends get 500"
            assert full(snapshot, gateway) == ([message] if gateway.name in lacking else []), (foreign, gateway)
