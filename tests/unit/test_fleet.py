"""A dialogue with the fleet: events of proxies, and the resulting effects."""

from __future__ import annotations

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.xds.acks import EXPIRES, LINGER, AckReport, GatewayAcks
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Part, Resource, Withdrawal
from lasthop.engine.plan.condition import true
from lasthop.engine.plan.listener import GatewayPlan, ListenerPlan
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.plan.reasons import ACCEPTED
from lasthop.run.fleet import Fleet, Programmed, ReportChanged, SetProxyState, SetQuarantine

WEB = Key("Gateway", "shop", "web")
API = Key("Service", "shop", "api")
HOP = "shop/web/shop/api/443/auto"
NOTHING = ProxyState()
CONNECTED = ProxyState(connected=True)
SERVING = ProxyState.acknowledged({(80, "TCP")})


def mk(type_url: str, name: str, version: str = "1", **parts: str) -> Resource:
    return Resource(type_url, name, version.encode(), version, parts or {name: version}, owners={HOP: API})


def listening(port: int = 80) -> GatewayPlan:
    listener = ListenerPlan(WEB, "http", port, "HTTP", "", str(port))
    return GatewayPlan(WEB, ("0.0.0.0",), (listener,), true(ACCEPTED))


def acked(*resources: Resource) -> Acked:
    return Acked(resources[0].type_url, {resource.name: resource for resource in resources})


def refused(cluster: Resource, why: str = "bad") -> Nacked:
    return Nacked(CLUSTER, {cluster.name: cluster}, f"Error adding/updating cluster(s) {cluster.name}: {why}")


LISTENS, TABLE = mk(LISTENER, "shop/web/80"), mk(ROUTES, "shop/web/80")
CLUSTER_1 = mk(CLUSTER, HOP)
PART = Part(CLUSTER, HOP, "1", API)


class World:
    """One Gateway with a listener, its route table and a cluster."""

    def __init__(self) -> None:
        self.fleet, self.cache = Fleet(), Cache()
        self.put(LISTENS, TABLE, CLUSTER_1)
        self.fleet.want(listening(), self.cache)

    def put(self, *resources: Resource) -> None:
        for resource in resources:
            self.cache.apply({resource.type_url: {resource.name: resource}})

    def serving(self) -> None:
        """A proxy that has acknowledged everything."""
        self.fleet.connected(WEB)
        for resource in (CLUSTER_1, LISTENS, TABLE):
            self.fleet.acked(WEB, acked(resource), 0.0, synced=False)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def fleet(world: World) -> Fleet:
    return world.fleet


def test_a_port_is_served_once_its_listener_and_its_routes_are_acknowledged(fleet: Fleet) -> None:
    assert fleet.connected(WEB) == [SetProxyState(WEB, CONNECTED), ReportChanged()]
    assert fleet.acked(WEB, acked(LISTENS), 1.0, synced=False) == [ReportChanged()], "Envoy listens only with routes"
    assert fleet.acked(WEB, acked(TABLE), 2.0, synced=True) == [SetProxyState(WEB, SERVING), ReportChanged()]
    assert fleet.acked(WEB, acked(TABLE), 3.0, synced=True) == [], "the same again"


def test_a_listener_that_changes_has_to_be_acknowledged_again_and_a_table_has_not(world: World) -> None:
    world.serving()
    world.put(mk(ROUTES, "shop/web/80", "2"))
    assert world.fleet.updated(WEB, 1.0) == []
    world.put(changed := mk(LISTENER, "shop/web/80", "2"))
    assert world.fleet.updated(WEB, 2.0) == [SetProxyState(WEB, CONNECTED)]
    assert world.fleet.acked(WEB, acked(changed), 3.0, synced=False) == [SetProxyState(WEB, SERVING), ReportChanged()]


def test_a_listener_that_was_removed_has_to_be_acknowledged_anew(world: World) -> None:
    world.serving()
    gone = Acked(LISTENER, {}, frozenset({"shop/web/80"}))
    assert world.fleet.acked(WEB, gone, 1.0, synced=False) == [SetProxyState(WEB, CONNECTED), ReportChanged()]


def test_only_ports_that_the_gateway_has_now_are_served(world: World) -> None:
    world.serving()
    world.fleet.want(listening(81), world.cache)
    assert world.fleet.updated(WEB, 1.0) == [SetProxyState(WEB, CONNECTED)]


def test_a_proxy_that_reconnects_does_not_flip_the_state(world: World) -> None:
    fleet = world.fleet
    world.serving()
    assert fleet.disconnected(WEB, 10.0, last=True) == [ReportChanged()]
    assert fleet.expire(10.0 + LINGER - 0.1) == []
    world.serving()
    assert fleet.expire(10.0 + LINGER) == []
    assert fleet.disconnected(WEB, 20.0, last=False) == [ReportChanged()], "another one is still there"
    assert fleet.expire(20.0 + LINGER) == []
    fleet.disconnected(WEB, 30.0, last=True)
    assert fleet.expire(30.0 + LINGER) == [SetProxyState(WEB, NOTHING)]


def test_the_reason_for_a_missing_proxy_is_reported_until_one_connects(fleet: Fleet) -> None:
    assert fleet.no_proxy(WEB, "no Envoy") == [SetProxyState(WEB, ProxyState(problem="no Envoy"))]
    assert fleet.connected(WEB) == [SetProxyState(WEB, CONNECTED), ReportChanged()]


def test_the_time_to_programmed_runs_from_the_first_change_to_the_last_acknowledgement(world: World) -> None:
    world.serving()
    world.fleet.updated(WEB, 10.0)
    world.fleet.updated(WEB, 11.0)
    assert world.fleet.acked(WEB, acked(CLUSTER_1), 12.0, synced=False) == []
    assert world.fleet.acked(WEB, acked(CLUSTER_1), 13.5, synced=True) == [Programmed(3.5)]
    assert world.fleet.acked(WEB, acked(CLUSTER_1), 14.0, synced=True) == []


def test_a_refused_part_is_withheld_and_reported_until_it_is_edited(world: World) -> None:
    fleet = world.fleet
    fleet.connected(WEB)
    assert fleet.nacked(WEB, refused(CLUSTER_1)) == [SetQuarantine(PART, "bad"), ReportChanged()]
    assert [(finding.object, finding.reason) for finding in fleet.findings()] == [(API, "RefusedByProxy")]
    assert fleet.report()[WEB].refused == ((*PART, "bad"),)
    assert fleet.served(lambda part: part == PART) == [], "it would be there if it were released"
    assert fleet.served(None) == [], "not everything is worked out"
    assert fleet.served(lambda part: False) == [SetQuarantine(PART, None)]
    assert [*fleet.findings()] == [] and fleet.report()[WEB].refused == ()


def test_valid_candidates_are_released(world: World) -> None:
    fleet, table = world.fleet, mk(ROUTES, "shop/web/80", "2", one="1", two="1")
    fleet.connected(WEB)
    one, two = Part(ROUTES, "one", "1"), Part(ROUTES, "two", "1")
    held = fleet.nacked(WEB, Nacked(ROUTES, {table.name: table}, "no good"))
    assert {effect for effect in held if isinstance(effect, SetQuarantine)} == {SetQuarantine(one, ""), SetQuarantine(two, "")}
    without = mk(ROUTES, "shop/web/80", "3", neither="1")
    world.put(without)
    (tried,) = [e for e in fleet.acked(WEB, acked(without), 0.0, synced=False) if isinstance(e, SetQuarantine)]
    assert tried == SetQuarantine(two, None)
    with_two = mk(ROUTES, "shop/web/80", "4", two="1")
    world.put(with_two)
    assert fleet.served(lambda part: True) == []
    (last,) = [e for e in fleet.acked(WEB, acked(with_two), 0.0, synced=False) if isinstance(e, SetQuarantine)]
    assert last == SetQuarantine(one, None)
    with_both = mk(ROUTES, "shop/web/80", "5", one="1", two="1")
    effects = fleet.nacked(WEB, Nacked(ROUTES, {table.name: with_both}, "no good"))
    assert SetQuarantine(one, "no good") in effects and SetQuarantine(two, "no good") not in effects
    assert [*fleet.findings()] == [], "routes have conditions of their own"


def test_a_port_that_is_taken_is_a_problem_until_its_listener_is_gone(world: World) -> None:
    fleet, why = world.fleet, "cannot bind '0.0.0.0:80': Address already in use"
    fleet.connected(WEB)
    taken = Nacked(LISTENER, {LISTENS.name: LISTENS}, f"Error adding/updating listener(s) {LISTENS.name}: {why}")
    assert fleet.nacked(WEB, taken) == [SetProxyState(WEB, ProxyState(connected=True, problem=why)), ReportChanged()]
    world.cache.apply({LISTENER: {LISTENS.name: Withdrawal(urgent=False)}})
    fleet.served(None)
    assert fleet.updated(WEB, 1.0) == [SetProxyState(WEB, CONNECTED)]


def report(**fields: object) -> AckReport:
    acks = GatewayAcks(True, {LISTENER: {"shop/web/80": "1"}, ROUTES: {"shop/web/80": "1"}})
    return {WEB: msgspec.structs.replace(acks, **fields)}


def test_a_proxy_of_another_replica_serves_as_one_of_ours(fleet: Fleet) -> None:
    assert fleet.heard("b", report(), 0.0) == [SetProxyState(WEB, SERVING)]
    assert fleet.heard("b", report(), 1.0) == []
    older = report(versions={LISTENER: {"shop/web/80": "0"}, ROUTES: {"shop/web/80": "0"}})
    assert fleet.heard("b", older, 2.0) == [SetProxyState(WEB, CONNECTED)]
    assert fleet.expire(2.0 + EXPIRES) == [SetProxyState(WEB, NOTHING)]
    assert fleet.report() == {}, "a replica reports its own proxies only"


def test_a_part_that_another_replicas_proxy_refuses_is_withheld_here_meanwhile(fleet: Fleet) -> None:
    effects = fleet.heard("b", report(refused=((*PART, "bad"),), problem="port 80 is taken"), 0.0)
    state = ProxyState.acknowledged({(80, "TCP")}, problem="port 80 is taken")
    assert effects == [SetQuarantine(PART, "bad"), SetProxyState(WEB, state)]
    assert [finding.object for finding in fleet.findings()] == [API]
    assert fleet.forget_replicas() == [SetQuarantine(PART, None), SetProxyState(WEB, NOTHING)]
    assert [*fleet.findings()] == []


def test_a_gateway_that_goes_takes_everything_along(world: World) -> None:
    fleet = world.fleet
    world.serving()
    fleet.nacked(WEB, refused(mk(CLUSTER, HOP, "2")))
    assert fleet.gone(WEB) == [SetProxyState(WEB, NOTHING), SetQuarantine(PART._replace(hash="2"), None)]
    assert (fleet.report(), [*fleet.findings()], dict(fleet.gateways)) == ({}, [], {})
    assert fleet.disconnected(WEB, 1.0, last=True) == fleet.acked(WEB, acked(LISTENS), 1.0, synced=True) == []
    fleet.want(listening(), world.cache)
    assert fleet.expire(2.0 + LINGER) == []
    assert fleet.updated(WEB, 3.0) == [SetProxyState(WEB, NOTHING)], "nothing is left of the time before"
