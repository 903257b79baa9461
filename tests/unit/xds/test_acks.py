"""Acknowledgements here and at other replicas, and how long they count."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.edge.xds.acks import EXPIRES, LINGER, AckTracker, GatewayAcks
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES

GATEWAY, OTHER, OWN = (Key("Gateway", "shop", name) for name in ("web", "other", "own"))


def acks(version: str = "1", problem: str = "") -> GatewayAcks:
    return GatewayAcks(True, {LISTENER: {"web/80": version}}, problem)


def test_acknowledgements_count_while_a_proxy_is_connected() -> None:
    tracker = AckTracker()
    assert not tracker.has_proxy(GATEWAY)
    tracker.connected(GATEWAY)
    assert tracker.acked(GATEWAY, LISTENER, {"web/80": "1"})
    assert not tracker.acked(GATEWAY, LISTENER, {"web/80": "1"}), "no news"
    assert tracker.has_proxy(GATEWAY)
    assert tracker.holds(GATEWAY, LISTENER, "web/80", "1")
    assert not tracker.holds(GATEWAY, LISTENER, "web/80", "2")
    assert not tracker.holds(GATEWAY, ROUTES, "web/80")
    assert not tracker.has_proxy(OTHER)


def test_a_proxy_that_comes_back_soon_was_never_away() -> None:
    tracker = AckTracker()
    tracker.connected(GATEWAY)
    tracker.acked(GATEWAY, LISTENER, {"web/80": "1"})
    tracker.disconnected(GATEWAY, now=100.0)
    assert tracker.expire(100.0 + LINGER - 0.1) == set()
    assert tracker.has_proxy(GATEWAY)
    assert tracker.holds(GATEWAY, LISTENER, "web/80", "1")
    tracker.connected(GATEWAY)
    assert tracker.expire(100.0 + LINGER) == {GATEWAY}
    assert tracker.has_proxy(GATEWAY)
    assert not tracker.holds(GATEWAY, LISTENER, "web/80"), "what the one before it had is not what this one has"


def test_a_proxy_that_stays_away_is_gone_after_a_moment() -> None:
    tracker = AckTracker()
    tracker.connected(GATEWAY)
    tracker.disconnected(GATEWAY, now=100.0)
    assert tracker.expire(100.0 + LINGER) == {GATEWAY}
    assert not tracker.has_proxy(GATEWAY)


def test_another_replicas_proxies_count_as_our_own() -> None:
    tracker = AckTracker()
    assert tracker.heard("b", {GATEWAY: acks()}, now=0.0) == {GATEWAY}
    assert tracker.heard("b", {GATEWAY: acks()}, now=1.0) == set(), "the same again is no news"
    assert tracker.has_proxy(GATEWAY)
    assert tracker.holds(GATEWAY, LISTENER, "web/80", "1")
    assert tracker.heard("b", {GATEWAY: acks("2", problem="port taken")}, now=2.0) == {GATEWAY}
    assert [refusal.problem for refusal in tracker.elsewhere(GATEWAY)] == ["port taken"]
    assert not tracker.holds(GATEWAY, LISTENER, "web/80", "1")


def test_the_newest_report_takes_the_place_of_the_one_before_and_a_lost_proxy_lingers() -> None:
    tracker = AckTracker()
    tracker.heard("b", {GATEWAY: acks()}, now=0.0)
    assert tracker.heard("b", {}, now=1.0) == {GATEWAY}
    assert tracker.has_proxy(GATEWAY), "it may be on its way to another replica"
    assert tracker.expire(1.0 + LINGER) == {GATEWAY}
    assert not tracker.has_proxy(GATEWAY)


def test_a_replica_that_falls_silent_is_forgotten() -> None:
    tracker = AckTracker()
    tracker.heard("b", {GATEWAY: acks()}, now=0.0)
    tracker.heard("c", {OTHER: acks()}, now=5.0)
    assert tracker.replicas == ["b", "c"]
    assert tracker.expire(EXPIRES) == {GATEWAY}
    assert not tracker.has_proxy(GATEWAY)
    assert tracker.has_proxy(OTHER)


def test_a_former_leader_forgets_other_proxies_but_not_its_own() -> None:
    tracker = AckTracker()
    tracker.connected(OWN)
    tracker.heard("b", {GATEWAY: acks()}, now=0.0)
    tracker.heard("b", {}, now=1.0)
    tracker.heard("c", {OTHER: acks()}, now=1.0)
    assert tracker.forget_replicas() == {GATEWAY, OTHER}
    assert [tracker.has_proxy(name) for name in (GATEWAY, OTHER, OWN)] == [False, False, True]


def test_a_gateway_that_is_no_more_leaves_nothing() -> None:
    tracker = AckTracker()
    tracker.connected(GATEWAY)
    tracker.disconnected(GATEWAY, now=0.0)
    tracker.gone(GATEWAY)
    assert not tracker.has_proxy(GATEWAY)
