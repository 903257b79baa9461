"""XBackendTrafficPolicy: the retry budget for Envoy, and edge cases of sessions and status that no case shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import AncestorReference, ForeignPolicyStatus, PolicyAncestorStatus
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from tests.snapshot import Snapshot, settle, settled
from tests.summary_clusters import BUDGET, retry_budget
from tests.world import keyed, mk_class, mk_gateway, mk_route, mk_service, mk_traffic_policy

S0 = {"group": "", "kind": "Service", "name": "api"}
HOP = "a/first/a/api/80/auto"


def world(*policies: Object) -> tuple[Engine, Snapshot]:
    """Two Gateways, the older one first, reach a Service."""
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/first"),
            mk_gateway("b/second"),
            mk_service("a/api", [{"name": "http", "port": 80}]),
            mk_route("a/one", "a/first", [{"name": "api", "port": 80}]),
            mk_route("a/two", "b/second", [{"name": "api", "port": 80}]),
            *policies,
        )
    )


def budget(snapshot: Snapshot, hop: str = HOP) -> str:
    gateway = Key.read("Gateway", "/".join(hop.split("/")[:2]))
    (thresholds,) = snapshot.clusters()[gateway, hop].circuit_breakers.thresholds
    return retry_budget(thresholds)


@pytest.mark.parametrize(
    "constraint, expected",
    [
        ({}, "20 % of 10 s, at least 10"),
        ({"budget": {"percent": 0, "interval": "1h"}}, "0 % of 3600 s, at least 10"),
        ({"minRetryRate": {"count": 7}}, "20 % of 10 s, at least 7"),
        ({"minRetryRate": {"count": 90, "interval": "1m"}}, "20 % of 10 s, at least 2"),
        ({"minRetryRate": {"count": 1, "interval": "1h"}}, "20 % of 10 s, at least 1"),
        ({"minRetryRate": {"count": 1_000_000, "interval": "1ms"}}, "20 % of 10 s, at least 1000000"),
        ({"budget": {"percent": 101}}, BUDGET),
        ({"budget": {"interval": "soon"}}, BUDGET),
        ({"budget": {"interval": "2h"}}, BUDGET),
        ({"minRetryRate": {"count": 0}}, BUDGET),
        ({"minRetryRate": {"interval": "0s"}}, BUDGET),
    ],
)
def test_a_constraint_is_a_budget_for_envoy_or_a_problem(constraint: dict[str, Any], expected: str) -> None:
    engine, snapshot = world(mk_traffic_policy("a/t", S0, retryConstraint=constraint))
    assert budget(snapshot) == expected
    assert (expected == BUDGET) == any(f.object == Key("XBackendTrafficPolicy", "a", "t") for f in engine.findings())


def test_a_budget_is_an_edit_of_clusters_alone() -> None:
    engine, snapshot = world()
    before = dict(snapshot.xds)
    engine.apply(keyed(mk_traffic_policy("a/t", S0, retryConstraint={})))
    settle(engine, snapshot)
    changed = {type for (_, type, name), resource in snapshot.xds.items() if before.get((_, type, name)) != resource}
    assert CLUSTER in changed and not changed & {ROUTES, LISTENER}


def test_the_gateway_that_finds_no_room_in_the_status_does_not_apply_the_policy_and_still_serves() -> None:
    policy = mk_traffic_policy("a/t", S0, retryConstraint={})
    assert isinstance(policy, XBackendTrafficPolicy)
    entries = tuple(PolicyAncestorStatus(AncestorReference(f"other-{n}"), "foreign.example/x") for n in range(15))
    engine, snapshot = world(msgspec.structs.replace(policy, status=ForeignPolicyStatus(entries)))
    assert budget(snapshot) != BUDGET
    assert budget(snapshot, "b/second/a/api/80/auto") == BUDGET
    assert any("no free entry for Gateway b/second" in finding.message for finding in engine.findings())


def test_a_policy_of_another_namespace_means_a_service_of_its_own() -> None:
    _, snapshot = world(mk_traffic_policy("b/t", S0, retryConstraint={}))
    assert budget(snapshot) == BUDGET
