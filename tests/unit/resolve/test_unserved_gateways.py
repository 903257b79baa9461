"""A valid policy at a Gateway that is not served: its status entry reports that, and no hop from there counts as verified."""

from __future__ import annotations

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import GatewayStatus, PolicyStatus, RouteStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.explain.explain import explain
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from tests.snapshot import settled
from tests.world import (
    HTTP_AND_HTTPS,
    ca_pem,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_secret,
    mk_service,
    mk_slice,
    profile_ref,
)

GATEWAY = Key("Gateway", "a", "g")
POLICY = Key("BackendTLSPolicy", "a", "p")
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/api"),
    mk_slice("a/api-1", "api", ["10.0.0.1"]),
    mk_config_map("a/ca", ca_pem("good")),
    mk_policy("a/p", "api", "api.example", ["ca"]),
    mk_route("a/r", "a/g", [{"name": "api", "port": 443}]),
)


def outcome(gateway: Object, problem: str = "") -> tuple[dict[str, tuple[str, str, str]], Engine]:
    engine, snapshot = settled({**WORLD, **keyed(gateway)})
    if problem:
        BIND_RESULT.set(engine.graph, BindResult(problem), GATEWAY, "0.0.0.0", 80, "TCP")
        snapshot.take(engine.settle())
    status = snapshot.status[POLICY]
    assert isinstance(status, PolicyStatus)
    return {c.type: (c.status, c.reason, c.message) for c in status.ancestors[0].conditions}, engine


def test_at_a_gateway_that_serves_there_is_no_such_condition() -> None:
    conditions, engine = outcome(mk_gateway("a/g"))
    assert conditions.keys() == {"Accepted", "ResolvedRefs", "BackendConnected"}
    assert [(hop.manner, hop.recorded) for hop in engine.hops()] == [("verified", True)]


@pytest.mark.parametrize(
    ("gateway", "problem", "message"),
    [
        (mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("nowhere")}), "", "Gateway a/g is not accepted: "),
        (mk_gateway("a/g", HTTP_AND_HTTPS[1:]), "", "Gateway a/g is not accepted: not valid: https"),
        (mk_gateway("a/g"), "0.0.0.0:80 is in use by nginx", "Gateway a/g serves no port: 0.0.0.0:80 is in use by nginx"),
    ],
)
def test_a_gateway_that_serves_nothing_is_named_in_the_entry_and_its_hops_are_not_verified(
    gateway: Object, problem: str, message: str
) -> None:
    conditions, engine = outcome(gateway, problem)
    assert conditions["Accepted"][0] == "True"
    assert conditions["Programmed"][:2] == ("False", "ParentNotProgrammed")
    assert conditions["Programmed"][2].startswith(message)
    (hop,) = engine.hops()
    assert hop.manner == "failing closed" and not hop.recorded, "the record knows the verdict, and not since when this is so"
    assert hop.detail.startswith(message)
    tree = explain(engine.graph, POLICY)
    assert tree is not None and tree.state == "bad"


def test_one_port_of_two_is_enough_to_serve() -> None:
    two = [HTTP_AND_HTTPS[0], {**HTTP_AND_HTTPS[0], "name": "other", "port": 8080}]
    engine, _ = settled({**WORLD, **keyed(mk_gateway("a/g", two))})
    BIND_RESULT.set(engine.graph, BindResult("taken"), GATEWAY, "0.0.0.0", 80, "TCP")
    engine.settle()
    assert [hop.manner for hop in engine.hops()] == ["verified"]


@pytest.mark.parametrize("section", ["", "http", "other"])
@pytest.mark.parametrize("problems", [{}, {80: "taken"}, {8080: "taken"}, {80: "taken", 8080: "taken"}])
def test_a_route_reports_an_unserved_port_of_exactly_its_listeners(section: str, problems: dict[int, str]) -> None:
    two = [HTTP_AND_HTTPS[0], {**HTTP_AND_HTTPS[0], "name": "other", "port": 8080}]
    parent = {"name": "g", **({"sectionName": section} if section else {})}
    route = mk_route("a/r", "a/g", [{"name": "api", "port": 443}], parents=[parent])
    engine, snapshot = settled({**WORLD, **keyed(mk_gateway("a/g", two), route)})
    for port in (80, 8080):
        BIND_RESULT.set(engine.graph, BindResult(problems.get(port, "")), GATEWAY, "0.0.0.0", port, "TCP")
    snapshot.take(engine.settle())
    status = snapshot.status[Key("HTTPRoute", "a", "r")]
    assert isinstance(status, RouteStatus)
    programmed = [(c.status, c.reason) for c in status.parents[0].conditions if c.type == "Programmed"]
    own = {"": {80, 8080}, "http": {80}, "other": {8080}}[section]
    assert programmed == ([("False", "ParentNotProgrammed")] if own & problems.keys() else [])


def test_a_client_certificate_that_cannot_be_shown_is_named_in_the_entry() -> None:
    conditions, engine = outcome(mk_gateway("a/g", tls={"backend": {"clientCertificateRef": {"name": "nowhere"}}}))
    assert conditions["Accepted"][0] == "True"
    assert conditions["Programmed"][:2] == ("False", "InvalidClientCertificateRef")
    assert [hop.manner for hop in engine.hops()] == ["failing closed"]


@pytest.mark.parametrize(
    ("days", "begins", "reason"),
    [(-1, -365, "ExpiredCertificate"), (800, 1, "NotYetValidCertificate"), (365, -365, "ResolvedRefs")],
)
def test_a_client_certificate_that_is_out_of_date_is_a_condition_of_the_gateway(days: int, begins: int, reason: str) -> None:
    gateway = mk_gateway("a/g", tls={"backend": {"clientCertificateRef": {"name": "own"}}})
    secret = mk_secret("a/own", *key_pair("own", days, begins))
    _, snapshot = settled({**WORLD, **keyed(gateway, secret)})
    status = snapshot.status[GATEWAY]
    assert isinstance(status, GatewayStatus)
    (resolved_refs,) = [condition for condition in status.conditions if condition.type == "ResolvedRefs"]
    assert (resolved_refs.reason, resolved_refs.status) == (reason, "True" if reason == "ResolvedRefs" else "False")
