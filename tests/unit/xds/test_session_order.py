"""Make before break, fail closed: the order of responses."""

from __future__ import annotations

from lasthop.edge.xds.session import PACE
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from tests.unit.xds.playbook import (
    Playbook,
    ack,
    acked,
    clusters,
    connected,
    drain,
    endpoints,
    listeners,
    nack,
    nacked,
    nothing,
    routes,
    secrets,
    sends,
    subscribe,
    update,
    wait,
    withdrawn,
)

# Order


def test_urgent_withdrawals_go_first_and_are_not_paced() -> None:
    (
        connected(clusters("a=1", "b=1"), routes("r=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("c=1"), routes("r=2"), withdrawn(CLUSTER, "b", urgent=True))
        << sends(CLUSTER, "-b")
        << nothing
    )


def test_an_urgent_withdrawal_overtakes_the_update_of_the_same_cluster() -> None:
    (
        connected(clusters("a=1", "b=1"))
        >> update(clusters("b=2"))
        << sends(CLUSTER, "b=2")
        >> update(clusters("a=2"))
        >> update(withdrawn(CLUSTER, "a", urgent=True))
        << sends(CLUSTER, "-a")
        << nothing
    )


def test_an_urgent_withdrawal_is_not_softened() -> None:
    (
        connected(clusters("a=1"), routes("r=1"))
        >> update(withdrawn(CLUSTER, "a", urgent=True))
        >> update(withdrawn(CLUSTER, "a"), routes("r=2"))
        << sends(CLUSTER, "-a")
        << sends(ROUTES, "r=2")
    )


def test_clusters_before_endpoints_and_secrets_before_listeners_before_routes() -> None:
    play = connected(clusters("a=1"), endpoints("a@1=1"), listeners("l=1"), routes("r=1"))
    play >> update(secrets("s=1")) >> subscribe(SECRET, ("s",)) << sends(SECRET, "s=1") >> ack(SECRET)
    (
        play
        >> update(routes("r=2"), listeners("l=2"), secrets("s=2"), endpoints("a@1=2"), clusters("a=2"))
        << sends(CLUSTER, "a=2")
        << sends(ENDPOINTS, "a@1=2")
        << sends(SECRET, "s=2")
        << sends(LISTENER, "l=2")
        << sends(ROUTES, "r=2")
        << nothing
    )


def test_routes_wait_until_a_new_cluster_is_confirmed_endpoints_and_all() -> None:
    (
        connected(clusters("a=1"), routes("r=1"))
        >> update(clusters("b=1"), endpoints("b@1=1"), routes("r=2"))
        << sends(CLUSTER, "b=1")
        << nothing
        >> subscribe(ENDPOINTS, ("b@1",))
        << sends(ENDPOINTS, "b@1=1")
        << nothing
        >> ack(ENDPOINTS)
        << acked(ENDPOINTS, "b@1=1")
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "b=1")
        << sends(ROUTES, "r=2")
    )


def test_routes_do_not_wait_longer_than_the_pace_for_a_cluster_that_warms() -> None:
    play = connected(clusters("a=1"), routes("r=1")) >> update(clusters("b=1"), routes("r=2"))
    play << sends(CLUSTER, "b=1") << nothing
    assert play.session.deadline() == play.now + PACE
    play >> wait(PACE) << sends(ROUTES, "r=2")


def test_at_a_cold_start_listeners_and_routes_wait_for_the_last_chunk() -> None:
    play = Playbook() >> update(clusters(*(f"c{i}=1" for i in range(120))), listeners("l=1"), routes("r=1"))
    play >> subscribe(CLUSTER) >> subscribe(LISTENER) >> subscribe(ROUTES, ("r",))
    drain(play)
    assert [r.type_url for r in play.responses] == [CLUSTER, CLUSTER, CLUSTER, LISTENER, ROUTES]


def test_a_cluster_nothing_names_any_more_goes_last_after_the_routes_are_confirmed() -> None:
    (
        connected(clusters("a=1", "b=1"), listeners("l=1"), routes("r=1"))
        >> update(withdrawn(CLUSTER, "a"), routes("r=2"))
        << sends(ROUTES, "r=2")
        << nothing
        >> wait(10 * PACE)
        << nothing
        >> ack(ROUTES)
        << acked(ROUTES, "r=2")
        << sends(CLUSTER, "-a")
        << nothing
    )


def test_while_a_route_table_is_refused_the_clusters_the_old_one_names_stay() -> None:
    (
        connected(clusters("a=1"), routes("r=1"))
        >> update(withdrawn(CLUSTER, "a"), routes("r=2"))
        << sends(ROUTES, "r=2")
        >> nack(ROUTES)
        << nacked(ROUTES, "r=2")
        << nothing
        >> update(routes("r=3"))
        << sends(ROUTES, "r=3")
        >> ack(ROUTES)
        << acked(ROUTES, "r=3")
        << sends(CLUSTER, "-a")
    )


def test_a_reconnecting_client_keeps_its_clusters_until_its_routes_are_known() -> None:
    play = connected(clusters("a=1", "b=1"), routes("r=1")) >> update(withdrawn(CLUSTER, "a"), routes("r=2"))
    (
        Playbook(play.cache)
        >> subscribe(CLUSTER, has=("a=1", "b=1"))
        << acked(CLUSTER, "b=1")
        << nothing
        >> subscribe(LISTENER)
        << sends(LISTENER)
        >> ack(LISTENER)
        << acked(LISTENER)
        >> wait(10 * PACE)
        << nothing
        >> subscribe(ROUTES, ("r",), has=("r=1",))
        << sends(ROUTES, "r=2")
        << nothing
        >> ack(ROUTES)
        << acked(ROUTES, "r=2")
        << sends(CLUSTER, "-a")
    )


def test_a_listener_that_is_gone_goes_with_the_one_that_wants_its_address() -> None:
    (
        connected(clusters("a=1"), listeners("old=1"))
        >> update(listeners("new=1"), withdrawn(LISTENER, "old"))
        << sends(LISTENER, "new=1", "-old")
        << nothing
    )


# Endpoints named after their cluster's version


def test_endpoints_of_a_changed_cluster_come_right_after_it_whatever_is_in_flight() -> None:
    (
        connected(clusters("a=1"), endpoints("a@1=1", "z@1=1"))
        >> update(endpoints("z@1=2"))
        << sends(ENDPOINTS, "z@1=2")
        >> update(clusters("a=2"), endpoints("a@2=1"), withdrawn(ENDPOINTS, "a@1"))
        << sends(CLUSTER, "a=2")
        << nothing
        >> subscribe(ENDPOINTS, ("a@2",), drops=("a@1",))
        << sends(ENDPOINTS, "a@2=1")
        << nothing
    )


def test_a_superseded_version_is_not_put_into_service_without_endpoints() -> None:
    """The client requests a@2 while the cluster is at 3 already: 3 goes first, though 2 is unconfirmed."""
    (
        connected(clusters("a=1"), endpoints("a@1=1"))
        >> update(clusters("a=2"), endpoints("a@2=1"), withdrawn(ENDPOINTS, "a@1"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("a=3"), endpoints("a@3=1"), withdrawn(ENDPOINTS, "a@2"))
        << nothing
        >> subscribe(ENDPOINTS, ("a@2",), drops=("a@1",))
        << sends(CLUSTER, "a=3")
        << sends(ENDPOINTS, "-a@2")
        >> subscribe(ENDPOINTS, ("a@3",), drops=("a@2",))
        << sends(ENDPOINTS, "a@3=1")
    )


def test_nor_when_the_endpoints_go_between_the_question_and_the_answer() -> None:
    (
        connected(clusters("a=1"), endpoints("a@1=1"))
        >> update(clusters("a=2"), endpoints("a@2=1"), withdrawn(ENDPOINTS, "a@1"))
        << sends(CLUSTER, "a=2")
        >> subscribe(ENDPOINTS, ("a@2",), drops=("a@1",))
        >> update(clusters("a=3"), endpoints("a@3=1"), withdrawn(ENDPOINTS, "a@2"))
        << sends(CLUSTER, "a=3")
        << sends(ENDPOINTS, "-a@2")
    )
