"""The consequences of an edit, computed beside the live engine."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.plan.finding import Severity
from lasthop.engine.resolve.settings import IN_CLUSTER
from lasthop.engine.what_if import Consequences, Rehearsal
from tests.rehearsed import POLICY, REFUSING, world
from tests.world import NOW, key, keyed, mk, mk_gateway, mk_policy, mk_profile, mk_route, mk_service, mk_waiver, own_ref

T = TypeVar("T")


def done(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


@pytest.fixture
def rehearsal() -> Rehearsal:
    return of(*world())


def of(*objects: Object) -> Rehearsal:
    rehearsed = Rehearsal(IN_CLUSTER, NOW.timestamp())
    rehearsed.changed(keyed(*objects))
    return rehearsed


def texts(verdict: Consequences) -> list[str]:
    return [f"{finding.object}: {finding.message}" for finding in verdict.introduced]


def test_writing_what_is_there_already_changes_nothing(rehearsal: Rehearsal) -> None:
    for obj in world():
        assert done(rehearsal.edit(key(obj), obj)) == Consequences((), ()), obj


def test_a_missing_ca_is_reported_once_without_its_consequences(rehearsal: Rehearsal) -> None:
    verdict = done(rehearsal.edit(key(POLICY), mk_policy("shop/api", "api", "api.example", ["no-ca"])))
    (text,) = texts(verdict)
    assert text.startswith("BackendTLSPolicy shop/api: ") and "ConfigMap shop/no-ca does not exist" in text
    assert not verdict.weaker, "it fails closed"
    assert not verdict.refused


def test_a_conflict_with_an_older_policy_is_reported(rehearsal: Rehearsal) -> None:
    younger = mk_policy("shop/second", "api", "other.example", ["ca"], created="2026-06-01T00:00:00Z")
    (text,) = texts(done(rehearsal.edit(key(younger), younger)))
    assert text.startswith("BackendTLSPolicy shop/second: ") and "shop/api" in text


def test_deleting_the_policy_turns_a_verified_hop_into_plaintext(rehearsal: Rehearsal) -> None:
    verdict = done(rehearsal.edit(key(POLICY), None))
    (change,) = verdict.weaker
    assert (change.gateway, change.backend, change.port) == (Key("Gateway", "shop", "web"), Key("Service", "shop", "api"), 443)
    assert change.before.startswith("must be verified") and change.after.startswith("plaintext")


def test_deleting_a_policy_that_fails_closed_is_reported_because_plaintext_follows(rehearsal: Rehearsal) -> None:
    broken = mk_policy("shop/api", "api", "api.example", ["no-ca"])
    rehearsal.changed(keyed(broken))
    (change,) = done(rehearsal.edit(key(broken), None)).weaker
    assert "ConfigMap shop/no-ca does not exist" in change.before and change.after.startswith("plaintext")
    assert not done(rehearsal.edit(key(POLICY), POLICY)).weaker, "a correction"
    elsewhere = mk_policy("shop/api", "apii", "api.example", ["ca"])
    assert done(rehearsal.edit(key(elsewhere), elsewhere)).weaker


def test_plaintext_to_a_service_that_was_missing_is_no_less_than_before() -> None:
    objects = [obj for obj in world() if obj is not POLICY and key(obj) != Key("Service", "shop", "api")]
    rehearsed = of(*objects)
    assert not done(rehearsed.edit(Key("Service", "shop", "api"), mk_service("shop/api"))).weaker


def test_a_route_to_a_missing_backend_is_reported(rehearsal: Rehearsal) -> None:
    route = mk_route("shop/new", "shop/web", [{"name": "nobody", "port": 443}])
    (text,) = texts(done(rehearsal.edit(key(route), route)))
    assert "Service shop/nobody does not exist" in text


def test_every_rehearsal_leaves_the_copy_as_it_was(rehearsal: Rehearsal) -> None:
    first = done(rehearsal.edit(key(POLICY), None))
    route = mk_route("shop/new", "shop/web", [{"name": "nobody", "port": 443}])
    done(rehearsal.edit(key(route), route))
    assert done(rehearsal.edit(key(POLICY), None)) == first


@pytest.mark.parametrize("steps", range(1, 12))
def test_one_that_is_stopped_halfway_leaves_nothing_behind(steps: int) -> None:
    rehearsal = of(*world())
    stopped = rehearsal.edit(key(POLICY), None)
    for _ in range(steps):
        if next(stopped, "the end") == "the end":
            break
    stopped.close()
    for obj in world():
        assert done(rehearsal.edit(key(obj), obj)) == Consequences((), ())


def test_it_keeps_up_with_the_cluster(rehearsal: Rehearsal) -> None:
    done(rehearsal.catch_up())
    rehearsal.changed({key(POLICY): None})
    assert not done(rehearsal.edit(key(POLICY), None)).weaker, "it is gone already"


def test_the_live_engine_is_never_touched() -> None:
    engine, rehearsal = Engine(IN_CLUSTER, NOW.timestamp()), of(*world())
    engine.apply(keyed(*world()))
    engine.settle()
    findings, hops = engine.findings(), engine.hops()
    assert done(rehearsal.edit(key(POLICY), None)).weaker
    assert not engine.unsettled
    assert (engine.findings(), engine.hops()) == (findings, hops)


def test_problems_of_another_namespace_stay_hidden() -> None:
    """The author of the edit is another user, who may not read that namespace."""
    other = mk_route("blog/new", "shop/web", [{"name": "nobody", "port": 443}], parents=[{"name": "web", "namespace": "shop"}])
    opened = mk_gateway(
        "shop/web", [{"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}]
    )
    rehearsal = of(*world(), mk("Namespace", "blog"), opened, other)
    messages = texts(done(rehearsal.edit(key(opened), None)))
    assert [text.partition(":")[0] for text in messages] == ["BackendTLSPolicy shop/api", "HTTPRoute shop/api"]


# --- what operators refuse -------------------------------------------------------------------------------------------


def test_nothing_is_refused_without_a_profiles_rule() -> None:
    assert not done(of(*world(backendTLS={"plaintextBackends": "Deny"})).edit(key(POLICY), None)).refused


def test_an_edit_that_weakens_verification_is_refused_by_the_profiles_rule() -> None:
    (refused,) = done(of(*world(**REFUSING)).edit(key(POLICY), None)).refused
    assert "Gateway shop/web to Service shop/api:443 would be plaintext" in refused


def test_the_same_in_two_steps_is_refused_too() -> None:
    rehearsed = of(*world(**REFUSING))
    broken = mk_policy("shop/api", "api", "api.example", ["no-ca"])
    assert not done(rehearsed.edit(key(broken), broken)).refused, "it fails closed"
    rehearsed.changed(keyed(broken))
    assert done(rehearsed.edit(key(broken), None)).refused


def test_connections_that_a_profile_forbids_are_refused() -> None:
    rules = {**REFUSING, "backendTLS": {"plaintextBackends": "Deny"}}
    (refused,) = done(of(*world(**rules)).edit(key(POLICY), None)).refused
    assert "plaintext backends are denied here" in refused


def test_an_already_forbidden_hop_is_not_refused_again() -> None:
    rules = {**REFUSING, "backendTLS": {"plaintextBackends": "Deny"}}
    objects = [obj for obj in world(**rules) if obj is not POLICY]
    again = mk_route("shop/api", "shop/web", [{"name": "api", "port": 443}], hostnames=["shop.example"])
    assert not done(of(*objects).edit(key(again), again)).refused


@pytest.mark.parametrize(("expires", "refusals"), [("", 1), ("2026-12-01T00:00:00Z", 0)])
def test_a_waiver_without_end_is_refused_and_one_with_an_end_is_not(expires: str, refusals: int) -> None:
    rules = {"admission": {"refuse": ["WaiverWithoutEnd"]}, "backendTLS": {"waivers": "Allow"}}
    objects = [obj for obj in world(**rules) if obj is not POLICY]
    waived = mk_policy("shop/api", "api", "api.example", [own_ref("VerificationWaiver", "w")])
    waiver = mk_waiver("shop/w", expires=expires)
    refused = done(of(*objects, waived).edit(key(waiver), waiver)).refused
    assert len(refused) == refusals
    assert all("VerificationWaiver shop/w has no end" in text for text in refused)


def test_operators_are_not_locked_out_by_their_own_words() -> None:
    rules = {**REFUSING, "backendTLS": {"plaintextBackends": "Allow"}}
    objects = [obj for obj in world(**rules) if obj is not POLICY]
    stricter = mk_profile("shop/rules", **{**REFUSING, "backendTLS": {"plaintextBackends": "Deny"}})
    verdict = done(of(*objects).edit(key(stricter), stricter))
    assert not verdict.refused
    assert [finding.severity for finding in verdict.introduced] == [Severity.ERROR], "but warned"
