"""Observations of hops as conditions, findings and summaries, from their state alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import PolicyStatus, RouteStatus
from lasthop.engine.outputs.audit.observed import observed
from lasthop.engine.outputs.status.summary import summary
from lasthop.engine.plan.cluster_metadata import identity
from lasthop.engine.plan.observation import EndpointSeen, Failure, Health, HopSeen, HopState
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.settings import set_observed
from tests.observed import LEAF
from tests.snapshot import settled
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
)

GATEWAY, API = Key("Gateway", "a", "g"), Key("Service", "a", "api")
POLICY = Key("BackendTLSPolicy", "a", "p")
A, B, C = (f"10.0.0.{n}:9443" for n in (1, 2, 3))
NAME = "certificate is for old.example"
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/api"),
    mk_slice("a/api-1", "api", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    mk_config_map("a/ca", ca_pem("good")),
    mk_policy("a/p", "api", "api.example", ["ca"]),
    mk_route("a/r", "a/g", [{"name": "api", "port": 443}]),
)
PLAINTEXT = {key: obj for key, obj in WORLD.items() if key != POLICY}


def state(health: Health, *failures: Failure, working: tuple[str, ...] = ()) -> HopState:
    return HopState(health, 1000.0, failures, working)


class World:
    def __init__(self, objects: Mapping[Key, Object | None] = WORLD) -> None:
        self.engine, self.snapshot = settled(objects)

    def apply(self, *objects: Object) -> World:
        self.engine.apply(keyed(*objects))
        self.snapshot.take(self.engine.settle())
        return self

    def see(self, state: HopState | None, protocol: Protocol = Protocol.AUTO) -> World:
        set_observed(self.engine.graph, Hop(GATEWAY, API, 443, protocol), self.config, state)
        self.snapshot.take(self.engine.settle())
        return self

    @property
    def config(self) -> str:
        tls = hop_tls(self.engine.graph, GATEWAY, API, 443, Protocol.AUTO)
        assert not isinstance(tls, Refused)
        return identity(tls)

    @property
    def condition(self) -> tuple[str, str, str]:
        status = self.snapshot.status[POLICY]
        assert isinstance(status, PolicyStatus)
        return next((c.status, c.reason, c.message) for c in status.ancestors[0].conditions if c.type == "BackendConnected")

    @property
    def ready(self) -> tuple[str, str]:
        status = msgspec.to_builtins(self.snapshot.status[POLICY])
        readiness = summary({"metadata": {}, "status": status})
        return readiness.ready, readiness.why

    @property
    def failing(self) -> list[str]:
        return [f"{f.object}: {f.message}" for f in self.engine.findings() if f.reason == "BackendFailing"]


FAILING = state(Health.FAILING, Failure(NAME, (A,), handshake=True))


def test_nothing_is_known_at_first_and_that_is_ready() -> None:
    world = World()
    assert world.condition[:2] == ("Unknown", "NotTried") and world.ready == ("True", "")


def test_a_working_hop_is_connected() -> None:
    world = World().see(state(Health.WORKING, working=(A,)))
    assert world.condition == ("True", "HandshakesSucceed", "") and world.ready[0] == "True"


def test_a_failing_hop_is_not_ready_and_has_a_finding_until_it_works_again() -> None:
    world = World().see(FAILING)
    assert world.condition == ("False", "HandshakeFailed", f"Service a/api:443 ({A}): {NAME}")
    assert world.ready == ("False", f"a/g: HandshakeFailed: Service a/api:443 ({A}): {NAME}")
    assert world.failing == [f"{POLICY}: at {GATEWAY}: Service a/api:443 ({A}): {NAME}."]
    world.see(state(Health.WORKING, working=(A,)))
    assert world.condition[0] == "True" and world.failing == []


def test_before_the_handshake_it_is_the_connection_that_fails() -> None:
    assert World().see(state(Health.FAILING, Failure("connection refused", (A,)))).condition[1] == "ConnectionFailed"


def test_some_of_several_endpoints_are_named() -> None:
    world = World().see(state(Health.PARTLY_FAILING, Failure(NAME, (A, B), handshake=True), working=(C,)))
    assert world.condition[2] == f"2 of 3 endpoints of Service a/api:443 ({A}, {B}): {NAME}"


def test_ejected_endpoints_are_reported() -> None:
    failure = Failure(NAME, (A, B), handshake=True)
    out = msgspec.structs.replace(state(Health.PARTLY_FAILING, failure, working=(C,)), ejected=(A, B, "10.9.9.9:1"))
    where = f"2 of 3 endpoints of Service a/api:443 ({A}, {B}): {NAME}"
    assert World().see(out).condition[2] == f"{where} (ejected: no traffic for 30 s at a time)"
    one = msgspec.structs.replace(out, ejected=(A,))
    world = World().see(one)
    assert world.condition[2] == f"{where} (1 of them ejected: no traffic for 30 s at a time)"
    assert world.failing == [f"{POLICY}: at {GATEWAY}: {world.condition[2]}."]


def test_a_proxy_that_alone_sees_it_is_named() -> None:
    world = World().see(state(Health.PARTLY_FAILING, Failure("timeout", (A,), ("pod-2",)), working=(A,)))
    assert world.condition[2] == f"Service a/api:443 ({A}), from pod-2: timeout"


def test_endpoints_that_are_gone_are_left_out() -> None:
    world = World().see(state(Health.PARTLY_FAILING, Failure(NAME, (A, "10.9.9.9:1"), handshake=True), working=(C,)))
    assert world.condition[2].startswith(f"1 of 2 endpoints of Service a/api:443 ({A})")
    world.apply(mk_slice("a/api-1", "api", ["10.0.0.2", "10.0.0.3"]))
    assert world.condition[:2] == ("True", "HandshakesSucceed")


def test_that_there_was_no_endpoint_is_over_when_there_is_one() -> None:
    assert World().see(state(Health.FAILING, Failure("backend has no ready endpoint", ()))).condition[0] == "Unknown"


def test_protocols_of_a_port_are_joined_unless_they_differ() -> None:
    world = World().see(state(Health.WORKING, working=(A,))).see(FAILING, Protocol.H1_UPGRADE)
    assert world.condition[2] == f"Service a/api:443 ({A}): {NAME} (only upgrades (WebSocket))"
    world.see(FAILING)
    assert world.condition[2] == f"Service a/api:443 ({A}): {NAME}"


def test_a_port_without_a_policy_has_a_finding_on_its_service() -> None:
    world = World(PLAINTEXT).see(state(Health.FAILING, Failure("connection refused", (A,))))
    assert world.failing == [f"{API}: at {GATEWAY}: Service a/api:443 ({A}): connection refused."]


def test_the_audit_has_requirements_and_observations() -> None:
    world = World().see(FAILING)
    (report,) = world.engine.hops()
    hop = Hop(GATEWAY, API, 443, Protocol.AUTO)
    observation = observed(world.engine.graph, report, {hop: HopSeen(3, 2, 2, last_failure=5.0)}.get).observed
    assert (
        observation
        and observation.health is Health.FAILING
        and (observation.handshakes, observation.handshake_failures) == (3, 2)
    )
    assert observation.failures == FAILING.failures
    assert observed(world.engine.graph, report, lambda _: None).observed is None


def shown(world: World, *endpoints: EndpointSeen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the certificates' subjects and the TLS versions that the audit reports as seen."""
    (report,) = world.engine.hops()
    of_now = tuple(msgspec.structs.replace(endpoint, config=endpoint.config or world.config) for endpoint in endpoints)
    seen = {Hop(GATEWAY, API, 443, Protocol.AUTO): HopSeen(3, 0, 0, endpoints=of_now)}
    observation = observed(world.engine.graph, report, seen.get).observed
    assert observation
    return tuple(leaf.subject for leaf in observation.certificates), observation.tls_versions


def test_the_audit_has_no_certificate_of_an_endpoint_that_is_gone_and_none_of_a_plaintext_hop() -> None:
    here = EndpointSeen(A, certificate=LEAF, tls_version="TLSv1.3")
    gone = EndpointSeen("10.9.9.9:9443", certificate=msgspec.structs.replace(LEAF, subject="CN=gone"), tls_version="TLSv1.2")
    assert shown(World(), here, gone) == (("CN=api",), ("TLSv1.3",))
    assert shown(World(PLAINTEXT), here, gone) == ((), ())
    assert shown(World(), msgspec.structs.replace(here, config="another")) == ((), ()), "it was shown under another policy"


def test_successful_plaintext_is_not_evidence_of_a_handshake_under_a_later_policy() -> None:
    world = World(PLAINTEXT).see(state(Health.WORKING, working=(A,)))
    world.apply(mk_policy("a/p", "api", "api.example", ["ca"]))
    assert world.condition[:2] == ("Unknown", "NotTried") and world.failing == []


def test_a_policy_does_not_inherit_observations_of_an_earlier_one_of_its_name() -> None:
    world = World().see(FAILING)
    assert world.condition[:2] == ("False", "HandshakeFailed")
    world.apply(mk_policy("a/p", "api", "other.example", ["ca"]))
    assert world.condition[:2] == ("Unknown", "NotTried") and world.failing == []
    world.apply(mk_policy("a/p", "api", "api.example", ["ca"]))
    assert world.condition[:2] == ("False", "HandshakeFailed"), "it asks for the same again"


def test_an_object_without_a_status_is_not_served_or_not_reached() -> None:
    why = {kind: summary({"kind": kind, "metadata": {}}).why for kind in ("XMesh", "BackendTLSPolicy")}
    assert why == {"XMesh": "XMesh is not served by this version", "BackendTLSPolicy": "no Gateway of this controller uses it"}


# --- without a policy ------------------------------------------------------------------------------------------------

ROUTE = Key("HTTPRoute", "a", "r")


def route_condition(world: World, route: Key = ROUTE) -> tuple[str, str, str] | None:
    status = world.snapshot.status[route]
    assert isinstance(status, RouteStatus)
    conditions = (c for c in status.parents[0].conditions if c.type == "BackendConnected")
    return next(((c.status, c.reason, c.message) for c in conditions), None)


def test_a_route_reports_a_failing_backend_without_a_policy_and_nothing_while_it_works() -> None:
    world = World(PLAINTEXT)
    assert route_condition(world) is None
    world.see(state(Health.FAILING, Failure("connection refused", (A,))))
    assert route_condition(world) == ("False", "ConnectionFailed", f"Service a/api:443 ({A}): connection refused")
    world.see(state(Health.WORKING, working=(A,)))
    assert route_condition(world) is None


def test_a_route_reports_that_connections_under_its_policy_fail() -> None:
    """A reader of a cluster may see the route alone."""
    assert route_condition(World().see(FAILING)) == ("False", "HandshakeFailed", f"Service a/api:443 ({A}): {NAME}")


def test_every_route_to_a_failing_backend_reports_it() -> None:
    many = keyed(*(mk_route(f"a/r{n:03}", "a/g", [{"name": "api", "port": 443}]) for n in range(150)))
    world = World({**PLAINTEXT, **many}).see(state(Health.FAILING, Failure("connection refused", (A,))))
    assert all(route_condition(world, key) for key in (ROUTE, *many))
