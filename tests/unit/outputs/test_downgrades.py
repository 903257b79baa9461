"""A port that loses its last policy is plaintext, as the spec has it, and that is an error until somebody says it is meant."""

from __future__ import annotations

import pytest

from lasthop.api.meta import Key, Object
from lasthop.engine import Engine
from lasthop.plan.finding import Finding
from tests.snapshot import Snapshot, settle, settled
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    profile_ref,
)

POLICY = Key("BackendTLSPolicy", "a", "p")
ROUTE = Key("HTTPRoute", "a", "r")
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/backend"),
    mk_route("a/r", "a/g", [{"name": "backend", "port": 443}]),
    mk_config_map("a/c", ca_pem("good")),
    mk_policy("a/p", "backend", "api.example", ["c"], section="https"),
)


@pytest.fixture
def engine() -> Engine:
    made, _ = settled(WORLD)
    assert downgraded(made) == []
    return made


def downgraded(engine: Engine) -> list[Finding]:
    return [finding for finding in engine.findings() if finding.reason == "NoLongerVerified"]


def edit(engine: Engine, changes: dict[Key, Object | None]) -> list[Finding]:
    engine.apply(changes)
    settle(engine, Snapshot())
    return downgraded(engine)


def test_a_deleted_policy_is_an_error_of_the_route(engine: Engine) -> None:
    (found,) = edit(engine, {POLICY: None})
    assert (found.object, found.severity) == (ROUTE, "error")
    assert found.message == "backend a/backend:443 is plaintext now, because BackendTLSPolicy a/p is gone."


def test_a_mistyped_target_is_named(engine: Engine) -> None:
    (found,) = edit(engine, keyed(mk_policy("a/p", "backed", "api.example", ["c"], section="https")))
    assert found.message.endswith("because BackendTLSPolicy a/p names Service a/backed, which does not exist.")


def test_a_target_that_moved_on_is_named(engine: Engine) -> None:
    (found,) = edit(engine, keyed(mk_service("a/other"), mk_policy("a/p", "other", "api.example", ["c"])))
    assert found.message.endswith("because BackendTLSPolicy a/p does not name it any more.")


def test_a_policy_that_never_worked_counts_as_one(engine: Engine) -> None:
    assert edit(engine, keyed(mk_policy("a/p", "backend", "api.example", ["nowhere"]))) == []
    assert len(edit(engine, {POLICY: None})) == 1


def test_a_renamed_port_is_refused_and_not_plaintext(engine: Engine) -> None:
    assert edit(engine, keyed(mk_service("a/backend", [{"name": "tls", "port": 443}]))) == []
    assert len(edit(engine, {POLICY: None})) == 1


@pytest.mark.parametrize(
    "acknowledged",
    [
        keyed(mk_service("a/backend", [{"name": "https", "port": 443, "appProtocol": "http"}])),
        keyed(mk_policy("a/again", "backend", "api.example", ["c"])),
        {ROUTE: None},
        {Key("Service", "a", "backend"): None},
    ],
)
def test_it_ends_when_plaintext_is_meant_or_over(engine: Engine, acknowledged: dict[Key, Object | None]) -> None:
    assert edit(engine, {POLICY: None})
    assert edit(engine, acknowledged) == []


def test_a_route_that_comes_back_later_has_nothing_to_lose(engine: Engine) -> None:
    edit(engine, {ROUTE: None})
    edit(engine, {POLICY: None})
    assert edit(engine, {ROUTE: WORLD[ROUTE]}) == []


def test_where_plaintext_is_denied_nothing_is_downgraded(engine: Engine) -> None:
    denied = mk_profile("a/f", backendTLS={"plaintextBackends": "Deny"})
    gateway = mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")})
    assert edit(engine, {**keyed(denied, gateway), POLICY: None}) == []


def test_it_is_told_once_for_each_route_however_many_gateways_lead_there(engine: Engine) -> None:
    parents = [{"name": "g"}, {"name": "h"}]
    edit(engine, keyed(mk_gateway("a/h"), mk_route("a/r", "", [{"name": "backend", "port": 443}], parents=parents)))
    assert len(edit(engine, {POLICY: None})) == 1


def test_nothing_is_unsettled_by_what_is_remembered(engine: Engine) -> None:
    assert not engine.unsettled
    edit(engine, {POLICY: None})
    assert not engine.unsettled
    edit(engine, {POLICY: WORLD[POLICY]})
    assert not engine.unsettled
