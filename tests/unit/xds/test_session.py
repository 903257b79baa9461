"""The client's subscriptions and resources, and when it is synced."""

from __future__ import annotations

from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER
from tests.unit.xds.playbook import (
    Playbook,
    ack,
    acked,
    clusters,
    connected,
    endpoints,
    listeners,
    nothing,
    routes,
    sends,
    subscribe,
    update,
    wait,
    withdrawn,
)

# Subscriptions


def test_first_request_without_names_is_a_wildcard() -> None:
    (
        Playbook()
        >> update(clusters("a=1", "b=1"))
        >> subscribe(CLUSTER)
        << sends(CLUSTER, "a=1", "b=1")
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=1", "b=1")
        >> update(clusters("c=1"))
        << sends(CLUSTER, "c=1")
        << nothing
    )


def test_a_wildcard_is_answered_even_if_there_is_nothing() -> None:
    """Envoy would wait 15 s for its clusters before it requests listeners."""
    (
        Playbook()
        >> subscribe(CLUSTER)
        << sends(CLUSTER)
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER)
        >> update(clusters("a=1"))
        << sends(CLUSTER, "a=1")
        << nothing
    )


def test_star_is_a_wildcard_too() -> None:
    Playbook() >> update(clusters("a=1")) >> subscribe(CLUSTER, ("*",)) << sends(CLUSTER, "a=1") << nothing


def test_endpoints_are_sent_by_name_only() -> None:
    (
        Playbook()
        >> update(endpoints("a@1=1", "b@1=1"))
        >> subscribe(ENDPOINTS, ("a@1",))
        << sends(ENDPOINTS, "a@1=1")
        << nothing
        >> update(endpoints("b@1=2"))
        << nothing
    )


def test_no_names_for_endpoints_means_none() -> None:
    Playbook() >> update(endpoints("a@1=1")) >> subscribe(ENDPOINTS) << nothing


def test_unknown_endpoints_are_answered_with_their_absence_so_that_nothing_warms_for_long() -> None:
    (
        Playbook()
        >> subscribe(ENDPOINTS, ("a@1",))
        << sends(ENDPOINTS, "-a@1")
        << nothing
        >> ack(ENDPOINTS)
        << acked(ENDPOINTS, "-a@1")
        >> update(endpoints("a@1=1"))
        << sends(ENDPOINTS, "a@1=1")
    )


def test_a_name_requested_again_is_sent_again() -> None:
    (
        Playbook()
        >> update(endpoints("a@1=1"))
        >> subscribe(ENDPOINTS, ("a@1",))
        << sends(ENDPOINTS, "a@1=1")
        >> ack(ENDPOINTS)
        >> subscribe(ENDPOINTS, ("a@1",))
        << sends(ENDPOINTS, "a@1=1")
        << nothing
    )


def test_an_unsubscribed_name_is_forgotten() -> None:
    (
        Playbook()
        >> update(endpoints("a@1=1"))
        >> subscribe(ENDPOINTS, ("a@1",))
        << sends(ENDPOINTS, "a@1=1")
        >> ack(ENDPOINTS)
        >> subscribe(ENDPOINTS, drops=("a@1",))
        >> update(endpoints("a@1=2"))
        << nothing
        >> update(withdrawn(ENDPOINTS, "a@1"))
        >> wait(1)
        << nothing
    )


def test_unsubscribing_from_the_wildcard_ends_it() -> None:
    (
        Playbook()
        >> update(clusters("a=1", "b=1"))
        >> subscribe(CLUSTER, ("*", "b"))
        << sends(CLUSTER, "a=1", "b=1")
        >> ack(CLUSTER)
        >> subscribe(CLUSTER, drops=("*",))
        >> update(clusters("a=2", "b=2"))
        << sends(CLUSTER, "b=2")
    )


def test_a_name_unsubscribed_under_a_wildcard_gets_its_current_state() -> None:
    (
        Playbook()
        >> update(clusters("a=1"))
        >> subscribe(CLUSTER, ("*", "a", "b"))
        << sends(CLUSTER, "a=1", "-b")
        >> ack(CLUSTER)
        >> subscribe(CLUSTER, drops=("a", "b"))
        << sends(CLUSTER, "a=1", "-b")
    )


def test_types_we_do_not_serve_are_ignored() -> None:
    Playbook() >> subscribe("type.googleapis.com/envoy.service.runtime.v3.Runtime", ("x",)) << nothing


# Versions


def test_equal_content_is_never_sent_twice() -> None:
    play = connected(clusters("a=1"))
    assert not play.cache.apply(clusters("a=1"))
    play << nothing


def test_the_newest_state_wins() -> None:
    (
        connected(clusters("a=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("a=3"))
        >> update(clusters("a=4"))
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=2")
        << sends(CLUSTER, "a=4")
    )


def test_a_change_undone_before_it_was_sent_is_not_sent() -> None:
    (
        connected(clusters("a=1", "b=1"))
        >> update(clusters("b=2"))
        << sends(CLUSTER, "b=2")
        >> update(clusters("a=2"))
        >> update(clusters("a=1"))
        >> ack(CLUSTER)
        << acked(CLUSTER, "b=2")
        << nothing
    )


def test_a_reconnecting_client_gets_only_what_it_lacks() -> None:
    (
        Playbook()
        >> update(clusters("a=1", "b=2", "c=1"))
        >> subscribe(CLUSTER, has=("a=1", "b=1"))
        << acked(CLUSTER, "a=1")
        << sends(CLUSTER, "b=2", "c=1")
        << nothing
    )


def test_a_reconnecting_client_is_not_sent_the_endpoints_it_names_and_has() -> None:
    (
        Playbook()
        >> update(endpoints("a@1=1", "b@1=1"))
        >> subscribe(ENDPOINTS, ("a@1", "b@1"), has=("a@1=1",))
        << acked(ENDPOINTS, "a@1=1")
        << sends(ENDPOINTS, "b@1=1")
        << nothing
    )


def test_a_cluster_the_cache_never_heard_of_is_removed_from_a_reconnecting_client_at_once() -> None:
    (
        Playbook()
        >> update(clusters("a=1", "b=1"))
        >> subscribe(CLUSTER, has=("a=1", "old=1"))
        << sends(CLUSTER, "-old")
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=1")
        << acked(CLUSTER, "-old")
        << sends(CLUSTER, "b=1")
    )


def test_a_reconnecting_client_gets_removals_even_of_resources_that_it_does_not_report() -> None:
    """Taken out of a response it refused, Envoy has a cluster without having recorded it."""
    play = connected(clusters("a=1"), listeners("l=1")) >> update(withdrawn(CLUSTER, "b", urgent=True))
    Playbook(play.cache) >> subscribe(CLUSTER, has=("a=1",)) << acked(CLUSTER, "a=1") << sends(CLUSTER, "-b") << nothing


# Being in step


def test_synced_means_that_the_client_has_confirmed_everything() -> None:
    play = Playbook() >> update(clusters("a=1"))
    assert not play.session.synced
    play >> subscribe(CLUSTER) << sends(CLUSTER, "a=1") >> ack(CLUSTER)
    assert not play.session.synced  # it has not requested listeners yet
    play >> subscribe(LISTENER)
    assert not play.session.synced  # it has not received an empty response
    play << sends(LISTENER) >> ack(LISTENER)
    assert play.session.synced
    play >> update(clusters("a=2"))
    assert not play.session.synced
    play << sends(CLUSTER, "a=2")
    assert not play.session.synced
    play >> ack(CLUSTER)
    assert play.session.synced
    play >> update(withdrawn(CLUSTER, "a"))
    assert not play.session.synced


def test_a_session_at_rest_needs_no_timer() -> None:
    play = connected(clusters("a=1"), routes("r=1"))
    play << nothing
    assert play.session.deadline() is None
    assert "current" in repr(play.session)
