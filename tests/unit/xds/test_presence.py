"""Who has confirmed what, here and at other replicas, and for how long it counts."""

from __future__ import annotations

from lasthop.outputs.envoy.resource import LISTENER, ROUTES
from lasthop.xds.presence import EXPIRES, LINGER, Presence, Standing

GATEWAY = "shop/web"


def standing(version: str = "1", problem: str = "") -> Standing:
    return Standing(True, {LISTENER: {"web/80": version}}, problem)


def test_what_is_confirmed_here_counts_while_a_proxy_is_connected() -> None:
    presence = Presence()
    assert not presence.connected(GATEWAY)
    presence.arrived(GATEWAY)
    assert presence.confirmed(GATEWAY, LISTENER, {"web/80": "1"})
    assert not presence.confirmed(GATEWAY, LISTENER, {"web/80": "1"}), "no news"
    assert presence.connected(GATEWAY)
    assert presence.holds(GATEWAY, LISTENER, "web/80", "1")
    assert not presence.holds(GATEWAY, LISTENER, "web/80", "2")
    assert not presence.holds(GATEWAY, ROUTES, "web/80")
    assert not presence.connected("shop/other")


def test_a_proxy_that_comes_back_soon_was_never_away() -> None:
    presence = Presence()
    presence.arrived(GATEWAY)
    presence.confirmed(GATEWAY, LISTENER, {"web/80": "1"})
    presence.left(GATEWAY, now=100.0)
    assert presence.expire(100.0 + LINGER - 0.1) == set()
    assert presence.connected(GATEWAY)
    assert presence.holds(GATEWAY, LISTENER, "web/80", "1")
    presence.arrived(GATEWAY)
    assert presence.expire(100.0 + LINGER) == {GATEWAY}
    assert presence.connected(GATEWAY)
    assert not presence.holds(GATEWAY, LISTENER, "web/80"), "what the one before it had is not what this one has"


def test_a_proxy_that_stays_away_is_gone_after_a_moment() -> None:
    presence = Presence()
    presence.arrived(GATEWAY)
    presence.left(GATEWAY, now=100.0)
    assert presence.expire(100.0 + LINGER) == {GATEWAY}
    assert not presence.connected(GATEWAY)


def test_another_replicas_proxies_count_as_our_own() -> None:
    presence = Presence()
    assert presence.heard("b", {GATEWAY: standing()}, now=0.0) == {GATEWAY}
    assert presence.heard("b", {GATEWAY: standing()}, now=1.0) == set(), "the same again is no news"
    assert presence.connected(GATEWAY)
    assert presence.holds(GATEWAY, LISTENER, "web/80", "1")
    assert presence.heard("b", {GATEWAY: standing("2", problem="port taken")}, now=2.0) == {GATEWAY}
    assert [found.problem for found in presence.elsewhere(GATEWAY)] == ["port taken"]
    assert not presence.holds(GATEWAY, LISTENER, "web/80", "1")


def test_the_newest_report_takes_the_place_of_the_one_before_and_a_lost_proxy_lingers() -> None:
    presence = Presence()
    presence.heard("b", {GATEWAY: standing()}, now=0.0)
    assert presence.heard("b", {}, now=1.0) == {GATEWAY}
    assert presence.connected(GATEWAY), "it may be on its way to another replica"
    assert presence.expire(1.0 + LINGER) == {GATEWAY}
    assert not presence.connected(GATEWAY)


def test_a_replica_that_falls_silent_is_forgotten() -> None:
    presence = Presence()
    presence.heard("b", {GATEWAY: standing()}, now=0.0)
    presence.heard("c", {"shop/other": standing()}, now=5.0)
    assert presence.replicas == ["b", "c"]
    assert presence.expire(EXPIRES) == {GATEWAY}
    assert not presence.connected(GATEWAY)
    assert presence.connected("shop/other")


def test_who_leads_no_more_forgets_the_others_but_not_its_own() -> None:
    presence = Presence()
    presence.arrived("shop/own")
    presence.heard("b", {GATEWAY: standing()}, now=0.0)
    presence.heard("b", {}, now=1.0)
    presence.heard("c", {"shop/other": standing()}, now=1.0)
    assert presence.forget_others() == {GATEWAY, "shop/other"}
    assert [presence.connected(name) for name in (GATEWAY, "shop/other", "shop/own")] == [False, False, True]


def test_a_gateway_that_is_no_more_leaves_nothing() -> None:
    presence = Presence()
    presence.arrived(GATEWAY)
    presence.left(GATEWAY, now=0.0)
    presence.gone(GATEWAY)
    assert not presence.connected(GATEWAY)
