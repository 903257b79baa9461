"""The merge adds our part of a status; all other parts stay unchanged and in place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lasthop.base.api.gateway import GatewayAddress, RouteGroupKind
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.policies import AncestorReference
from lasthop.base.api.status import (
    AncestorStatus,
    ConditionStatus,
    GatewayClassStatus,
    GatewayStatus,
    ListenerSetStatus,
    ListenerStatus,
    PolicyStatus,
    RouteStatus,
    Status,
    SupportedFeature,
)
from lasthop.edge.sinks.kubernetes.merge import Outdated, generation, merged, observations, rendered, without_observations
from lasthop.engine.plan.reasons import CONDITION_TYPES
from tests.api_objects import BEFORE, Json, foreign, mk_condition, mk_parent
from tests.docs.code import condition_types

NOW = "2026-11-16T00:00:00Z"


def mk_ancestor(name: str, *conditions: ConditionStatus) -> AncestorStatus:
    ref = AncestorReference(name, "shop", "gateway.networking.k8s.io", "Gateway")
    return AncestorStatus(ref, CONTROLLER_NAME, conditions or (mk_condition(),))


def stored(type: str, status: str = "True", generation: int = 1, **more: Any) -> Json:
    stated = {"type": type, "status": status, "reason": type, "message": "", "observedGeneration": generation}
    return {**stated, "lastTransitionTime": BEFORE, **more}


def merge(current: Json, status: Status | None, kind: str = "HTTPRoute", now: str = NOW) -> Json:
    before = copy.deepcopy(current)
    result = merged(current, rendered(status, kind), now, "shop")
    assert current == before, "what stands is not to be changed in place"
    return result


def test_a_new_entry_is_added_after_foreign_ones() -> None:
    current = {"parents": [foreign("parentRef", "theirs")]}
    result = merge(current, RouteStatus((mk_parent("ours"),)))
    assert result["parents"][0] == current["parents"][0]
    [_, ours] = result["parents"]
    assert ours["parentRef"] == {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "ours", "namespace": "shop"}
    assert ours["controllerName"] == CONTROLLER_NAME
    assert ours["conditions"][0]["lastTransitionTime"] == NOW


def test_writing_an_unchanged_status_changes_nothing() -> None:
    status = RouteStatus((mk_parent("a"), mk_parent("a", section="https")))
    current = merge({"parents": [foreign("parentRef", "theirs")]}, status)
    assert merge(current, status, now="2030-01-01T00:00:00Z") == current


def test_two_sections_of_one_gateway_are_two_entries() -> None:
    refused = mk_parent("a", mk_condition(status="False"), section="https")
    current = merge({}, RouteStatus((mk_parent("a", section="http"), refused)))
    assert [(e["parentRef"]["sectionName"], e["conditions"][0]["status"]) for e in current["parents"]] == [
        ("http", "True"),
        ("https", "False"),
    ]
    assert merge(current, RouteStatus((refused,)))["parents"] == current["parents"][1:]


def test_foreign_entries_stay_in_place_and_order() -> None:
    first = merge({"parents": [foreign("parentRef", "x")]}, RouteStatus((mk_parent("a"), mk_parent("b"))))
    first["parents"].append(foreign("parentRef", "y"))
    second = merge(first, RouteStatus((mk_parent("c"), mk_parent("b", mk_condition(status="False", generation=2)))))
    assert [entry["parentRef"]["name"] for entry in second["parents"]] == ["x", "b", "y", "c"]
    assert second["parents"][0] == foreign("parentRef", "x") and second["parents"][2] == foreign("parentRef", "y")


def test_a_parentref_left_to_defaults_is_the_same_parent() -> None:
    ours = {"parentRef": {"name": "a"}, "controllerName": CONTROLLER_NAME, "conditions": [stored("Accepted")]}
    assert merge({"parents": [ours]}, RouteStatus((mk_parent("a"),))) == {"parents": [ours]}


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS.values() if kind.ancestors])
def test_of_every_kind_with_ancestors_our_entry_is_taken_away_again(kind: str) -> None:
    written = merge({"ancestors": [foreign("ancestorRef", "x")]}, PolicyStatus((mk_ancestor("gw"),)), kind)
    assert len(written["ancestors"]) == 2
    assert merge(written, None, kind) == {"ancestors": [foreign("ancestorRef", "x")]}


def test_nothing_of_ours_any_more_removes_only_ours() -> None:
    current = merge({"parents": [foreign("parentRef", "x")]}, RouteStatus((mk_parent("a"),)))
    assert merge(current, None) == {"parents": [foreign("parentRef", "x")]}
    policy = merge({"ancestors": [foreign("ancestorRef", "x")]}, PolicyStatus((mk_ancestor("a"),)), "BackendTLSPolicy")
    assert merge(policy, None, "BackendTLSPolicy") == {"ancestors": [foreign("ancestorRef", "x")]}


def test_a_gateway_of_another_controller_is_not_cleared() -> None:
    current = {"conditions": [stored("Accepted")], "listeners": []}
    assert merge(current, None, "Gateway") == current and merge(current, None, "GatewayClass") == current


def test_a_list_full_of_foreign_entries_is_left_alone() -> None:
    current = {"ancestors": [foreign("ancestorRef", f"x{n}") for n in range(16)]}
    assert merge(current, PolicyStatus((mk_ancestor("a"),)), "BackendTLSPolicy") == current
    current["ancestors"].pop()
    result = merge(current, PolicyStatus((mk_ancestor("a"), mk_ancestor("b"))), "BackendTLSPolicy")
    assert len(result["ancestors"]) == 16 and result["ancestors"][:15] == current["ancestors"]


def test_time_moves_only_with_the_status() -> None:
    current = {"conditions": [stored("Accepted")]}
    told = merge(current, GatewayClassStatus((mk_condition(message="now with words", generation=2),)), "GatewayClass")
    [condition] = told["conditions"]
    assert condition["lastTransitionTime"] == BEFORE
    assert (condition["message"], condition["observedGeneration"]) == ("now with words", 2)
    turned = merge(current, GatewayClassStatus((mk_condition(status="False"),)), "GatewayClass")
    assert turned["conditions"][0]["lastTransitionTime"] == NOW


def test_unknown_condition_types_stay_and_ours_go_when_they_no_longer_hold() -> None:
    theirs = {"type": "example.com/Stale", "status": "True", "reason": "Seeded", "lastTransitionTime": BEFORE}
    current = {"conditions": [stored("Accepted"), theirs, stored("ResolvedRefs"), stored("Programmed")]}
    wanted = GatewayStatus(conditions=(mk_condition("Programmed", generation=2), mk_condition("Accepted", generation=2)))
    result = merge(current, wanted, "Gateway")
    assert [c["type"] for c in result["conditions"]] == ["Accepted", "example.com/Stale", "Programmed"]
    assert result["conditions"][1] == theirs


def test_listeners_are_a_map_by_name_and_keep_foreign_conditions() -> None:
    theirs = {"type": "example.com/Stale", "status": "True", "reason": "Seeded", "lastTransitionTime": BEFORE}
    standing = {"name": "http", "attachedRoutes": 0, "supportedKinds": [], "conditions": [theirs], "newField": 7}
    gone = {"name": "old", "attachedRoutes": 1, "supportedKinds": [], "conditions": []}
    listeners = tuple(
        ListenerStatus(name, 3, (RouteGroupKind("HTTPRoute"),), (mk_condition("Programmed"),)) for name in ("https", "http")
    )
    current = {"listeners": [standing, gone], "attachedListenerSets": 2}
    addresses = (GatewayAddress("IPAddress", "10.0.0.1"),)
    result = merge(current, GatewayStatus(addresses, (), listeners, attached_listener_sets=1), "Gateway")
    assert [listener["name"] for listener in result["listeners"]] == ["http", "https"]
    [http, https] = result["listeners"]
    assert http["newField"] == 7 and http["attachedRoutes"] == 3 and http["conditions"][0] == theirs
    assert https["supportedKinds"] == [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]
    assert result["addresses"] == [{"type": "IPAddress", "value": "10.0.0.1"}]
    assert result["attachedListenerSets"] == 1


def test_a_count_of_zero_is_written_only_over_another() -> None:
    """A CRD of an older bundle drops the field: writing it again and again would never end."""
    current = {"conditions": [stored("Accepted")]}
    wanted = GatewayStatus(conditions=(mk_condition(),))
    assert merge(current, wanted, "Gateway") == current
    assert merge({**current, "attachedListenerSets": 2}, wanted, "Gateway")["attachedListenerSets"] == 0
    one = GatewayStatus(conditions=(mk_condition(),), attached_listener_sets=1)
    assert merge(current, one, "Gateway")["attachedListenerSets"] == 1


def test_a_listener_set_is_another_parent_than_a_gateway_of_its_name() -> None:
    gateway, listener_set = mk_parent("web"), mk_parent("web", mk_condition(status="False"), kind="ListenerSet")
    result = merge({}, RouteStatus((gateway, listener_set)))
    assert [entry["parentRef"]["kind"] for entry in result["parents"]] == ["Gateway", "ListenerSet"]
    assert merge(result, RouteStatus((listener_set,)))["parents"] == result["parents"][1:]


def test_a_listener_set_has_listeners_as_a_gateway_has() -> None:
    listener = ListenerStatus("http", 1, (RouteGroupKind("HTTPRoute"),), (mk_condition("Programmed"),))
    result = merge(
        {"conditions": [stored("example.com/Other")]}, ListenerSetStatus((mk_condition(),), (listener,)), "ListenerSet"
    )
    assert [condition["type"] for condition in result["conditions"]] == ["example.com/Other", "Accepted"]
    assert result["listeners"][0]["supportedKinds"] == [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]
    assert merge(result, None, "ListenerSet") == result


def test_empty_lists_are_no_reason_to_write() -> None:
    current = {"conditions": [stored("Accepted")]}
    assert merge(current, GatewayStatus(conditions=(mk_condition(),)), "Gateway") == current


def test_the_defaults_of_the_crd_are_replaced() -> None:
    waiting = {"type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller"}
    current = {"conditions": [{**waiting, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
    [condition] = merge(current, GatewayClassStatus((mk_condition(),)), "GatewayClass")["conditions"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", NOW)


def test_no_more_than_eight_conditions() -> None:
    theirs = [{"type": f"example.com/{n}", "status": "True", "reason": "x", "lastTransitionTime": BEFORE} for n in range(7)]
    wanted = GatewayClassStatus((mk_condition("Accepted"), mk_condition("SupportedVersion")))
    result = merge({"conditions": theirs}, wanted, "GatewayClass")
    assert result["conditions"][:7] == theirs and [c["type"] for c in result["conditions"][7:]] == ["Accepted"]


@pytest.mark.parametrize("standing", [[stored("Accepted", generation=3)], [stored("PartiallyInvalid", generation=3)]])
def test_observed_generation_is_never_lowered(standing: list[Json]) -> None:
    with pytest.raises(Outdated):
        merge({"conditions": standing}, GatewayClassStatus((mk_condition(generation=2),)), "GatewayClass")


def test_unknown_fields_of_our_own_entries_are_preserved() -> None:
    current = merge({}, RouteStatus((mk_parent("a"),)))
    current["parents"][0]["newField"] = {"kept": True}
    current["parents"][0]["conditions"][0]["newField"] = 1
    result = merge(current, RouteStatus((mk_parent("a", mk_condition(generation=2)),)))
    assert result["parents"][0]["newField"] == {"kept": True} and result["parents"][0]["conditions"][0]["newField"] == 1


def test_generation_is_the_newest_that_we_speak_of() -> None:
    status = RouteStatus((mk_parent("a", mk_condition(generation=4)), mk_parent("b", mk_condition(generation=5))))
    assert generation(rendered(status, "HTTPRoute")) == 5 and generation(rendered(None, "HTTPRoute")) == 0


def test_all_conditions_that_are_made_are_known_to_be_ours() -> None:
    """One that is not would stay for ever once it stands."""
    made = condition_types()
    assert {"Accepted", "Programmed"} <= made <= CONDITION_TYPES.keys()


def test_features_of_a_class_are_replaced_as_a_whole() -> None:
    current = {"conditions": [], "supportedFeatures": [{"name": "Gateway"}, {"name": "Mesh"}]}
    status = GatewayClassStatus((mk_condition(),), (SupportedFeature("Gateway"), SupportedFeature("HTTPRoute")))
    result = merge(current, status, "GatewayClass")
    assert result["supportedFeatures"] == [{"name": "Gateway"}, {"name": "HTTPRoute"}]


@pytest.mark.parametrize(("field", "reference"), [("ancestors", "ancestorRef"), ("parents", "parentRef")])
def test_observed_conditions_are_separate_from_our_other_entries(field: str, reference: str) -> None:
    accepted, failing = ({"type": type, "status": "False"} for type in ("Accepted", "BackendConnected"))
    ours = {reference: {"name": "g"}, "controllerName": CONTROLLER_NAME, "conditions": [accepted, failing]}
    theirs = {reference: {"name": "g"}, "controllerName": "example.com/other", "conditions": [failing]}
    status = {field: [ours, theirs]}
    assert observations(status) == {"BackendConnected [('name', 'g')]": "False"}
    assert without_observations(status) == {field: [{**ours, "conditions": [accepted]}, theirs]}
