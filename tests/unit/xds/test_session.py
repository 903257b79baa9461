"""Each rule of xds/session.py as a dialogue."""

from __future__ import annotations

from xds_playbook import (
    START,
    Playbook,
    ack,
    acked,
    clusters,
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

from lasthop.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from lasthop.xds.session import CHUNK, HEAVY_CHUNK, PACE, RETRY


def connected(*changes: object, names: tuple[str, ...] = ()) -> Playbook:
    """A client that has all of these and has confirmed them."""
    play = Playbook() >> update(*changes) >> subscribe(CLUSTER)
    drain(play)
    eds = tuple(play.cache.names(ENDPOINTS))
    if eds:
        play >> subscribe(ENDPOINTS, eds)
    play >> subscribe(LISTENER) >> subscribe(ROUTES, tuple(play.cache.names(ROUTES)))
    drain(play)
    play.events.clear()
    play.responses.clear()
    assert play.session.synced
    return play >> wait(1)


def drain(play: Playbook) -> None:
    while response := play.poll():
        play >> ack(response.type_url)


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


def test_a_name_asked_for_again_is_answered_again() -> None:
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


def test_a_name_unsubscribed_under_a_wildcard_is_told_where_it_stands() -> None:
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


# Pacing


def test_one_response_of_a_type_is_unconfirmed() -> None:
    (
        connected(clusters("a=1", "b=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("b=2"))
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=2")
        << sends(CLUSTER, "b=2")
    )


def test_but_for_no_longer_than_the_pace_because_a_warming_cluster_withholds_its_confirmation() -> None:
    play = connected(clusters("a=1", "b=1")) >> update(clusters("a=2")) << sends(CLUSTER, "a=2")
    play >> update(clusters("b=2")) << nothing
    assert play.session.deadline() == play.now + PACE
    play >> wait(PACE) << sends(CLUSTER, "b=2")


def test_types_are_paced_apart() -> None:
    (
        connected(clusters("a=1"), endpoints("a@1=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(endpoints("a@1=2"))
        << sends(ENDPOINTS, "a@1=2")
    )


def test_a_clock_set_back_does_not_stop_the_stream() -> None:
    (
        connected(clusters("a=1", "b=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> wait(-3600)
        >> update(clusters("b=2"))
        << sends(CLUSTER, "b=2")
    )


def test_clusters_go_in_chunks() -> None:
    play = Playbook() >> update(clusters(*(f"c{i}=1" for i in range(120)))) >> subscribe(CLUSTER)
    drain(play)
    assert [len(r.resources) for r in play.responses] == [CHUNK, CHUNK, 20]


def test_heavy_clusters_go_in_smaller_chunks() -> None:
    play = Playbook() >> update(clusters(*(f"c{i}=1" for i in range(50)), heavy=True)) >> subscribe(CLUSTER)
    drain(play)
    assert [len(r.resources) for r in play.responses] == [HEAVY_CHUNK, HEAVY_CHUNK, 10]


def test_one_heavy_cluster_among_light_ones_ends_or_shortens_the_chunk() -> None:
    play = Playbook() >> update(clusters("heavy=1", heavy=True)) >> update(clusters(*(f"c{i}=1" for i in range(30))))
    play >> subscribe(CLUSTER)
    drain(play)
    assert [len(r.resources) for r in play.responses] == [30, 1]


def test_an_urgent_edit_overtakes_the_backlog_of_a_ca_rotation() -> None:
    """facts/xds.md 4: 68 ms instead of 1.1 s."""
    names = [f"c{i}" for i in range(1000)]
    play = connected(clusters(*(f"{n}=1" for n in names), "urgent=1"))
    play >> update(clusters(*(f"{n}=2" for n in names)))
    first = play.poll()
    assert first and len(first.resources) == CHUNK
    play >> update(clusters("urgent=2")) << nothing >> ack(CLUSTER)
    second = play.poll()
    assert second and len(second.resources) == CHUNK and second.resources[-1].name == "urgent"
    drain_rest = 0
    play >> ack(CLUSTER)
    while response := play.poll():
        drain_rest += len(response.resources)
        play >> ack(CLUSTER)
    assert drain_rest == 1000 - CHUNK - (CHUNK - 1)


def test_routes_do_not_wait_for_a_backlog_of_clusters_the_client_has_in_some_version() -> None:
    play = connected(clusters(*(f"c{i}=1" for i in range(200))), routes("r=1"))
    play >> update(clusters(*(f"c{i}=2" for i in range(200))))
    assert play.poll()
    play >> update(routes("r=2")) << sends(ROUTES, "r=2")


def test_an_endpoint_edit_promotes_its_cluster_in_the_backlog() -> None:
    names = [f"c{i}" for i in range(200)]
    play = connected(clusters(*(f"{n}=1" for n in names)), endpoints(*(f"{n}@1=1" for n in names)))
    play >> update(clusters(*(f"{n}=2" for n in names)), endpoints(*(f"{n}@2=1" for n in names)))
    assert play.poll()
    play >> update(endpoints("c7@2=2")) << nothing >> ack(CLUSTER)
    response = play.poll()
    assert response and response.resources[-1].name == "c7"


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
    """The client asks for a@2 while the cluster is at 3 already: 3 goes first, though 2 is unconfirmed."""
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


# Refusals


def test_what_was_refused_is_not_sent_again_until_it_changes() -> None:
    (
        connected(clusters("a=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> nack(CLUSTER, "bad a")
        << nacked(CLUSTER, "a=2", detail="bad a")
        << nothing
        >> update(clusters("a=3"))
        << sends(CLUSTER, "a=3")
    )


def test_when_the_culprit_is_withdrawn_the_innocent_of_its_response_go_again() -> None:
    """Envoy has applied them but recorded neither their versions nor their timers."""
    (
        connected(clusters("b=1"))
        >> update(clusters("b=2", "c=2"))
        << sends(CLUSTER, "b=2", "c=2")
        >> nack(CLUSTER)
        << nacked(CLUSTER, "b=2", "c=2")
        << nothing
        >> update(withdrawn(CLUSTER, "b", urgent=True))
        << sends(CLUSTER, "-b")
        >> ack(CLUSTER)
        << acked(CLUSTER, "-b")
        << sends(CLUSTER, "c=2")
    )


def test_an_edit_made_before_the_refusal_arrived_lifts_it() -> None:
    (
        connected(clusters("a=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("a=3"))
        >> nack(CLUSTER)
        << nacked(CLUSTER, "a=2")
        << sends(CLUSTER, "a=3")
    )


def test_going_back_to_what_was_confirmed_is_sent_because_the_client_may_have_applied_the_refused() -> None:
    (
        connected(clusters("a=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> nack(CLUSTER)
        << nacked(CLUSTER, "a=2")
        >> update(clusters("a=1"))
        << sends(CLUSTER, "a=1")
    )


def test_a_refusal_no_edit_follows_is_tried_again_after_a_while() -> None:
    play = connected(listeners("l=1")) >> update(listeners("l=2")) << sends(LISTENER, "l=2")
    play >> nack(LISTENER, "cannot bind") << nacked(LISTENER, "l=2", detail="cannot bind") << nothing
    assert play.session.deadline() == play.now + RETRY
    assert not play.session.synced
    play >> wait(RETRY) << sends(LISTENER, "l=2") >> ack(LISTENER) << acked(LISTENER, "l=2")
    assert play.session.synced


def test_the_refusal_of_an_overtaken_version_does_not_touch_the_newer_one() -> None:
    (
        connected(clusters("a=1"))
        >> update(clusters("a=2"))
        << sends(CLUSTER, "a=2")
        >> update(clusters("a=3"))
        >> wait(PACE)
        << sends(CLUSTER, "a=3")
        >> nack(CLUSTER)
        << nacked(CLUSTER, "a=2")
        << nothing
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=3")
        << nothing
    )


def test_an_answer_to_nothing_we_sent_is_ignored() -> None:
    play = connected(clusters("a=1"))
    play._receive(CLUSTER, nonce="77", detail="no")
    play << nothing
    assert play.events == []


# Expiry


def test_a_resource_that_expires_is_withdrawn_urgently_when_its_time_has_come() -> None:
    play = connected(clusters("a=1")) >> update(clusters("waived=1", expires=START + 60))
    response = play.poll()
    assert response and response.resources[0].expires == START + 60
    play >> ack(CLUSTER) << nothing
    assert play.session.deadline() == START + 60
    play >> wait(START + 60 - play.now) << sends(CLUSTER, "-waived")


def test_a_resource_that_has_expired_is_never_sent() -> None:
    connected(clusters("a=1")) >> update(clusters("waived=1", expires=START - 1)) << nothing


def test_a_prolonged_waiver_is_sent_again_though_its_bytes_are_the_same() -> None:
    play = connected(clusters("waived=1", expires=START + 60))
    play >> update(clusters("waived=1", expires=START + 60)) << nothing
    play >> update(clusters("waived=1", expires=START + 120)) << sends(CLUSTER, "waived=1") >> ack(CLUSTER)
    play >> wait(START + 61 - play.now) << nothing
    play >> wait(60) << sends(CLUSTER, "-waived")


# Being in step


def test_synced_means_that_the_client_has_confirmed_everything() -> None:
    play = Playbook() >> update(clusters("a=1"))
    assert not play.session.synced
    play >> subscribe(CLUSTER) << sends(CLUSTER, "a=1") >> ack(CLUSTER)
    assert not play.session.synced  # it has not asked for listeners yet
    play >> subscribe(LISTENER)
    assert play.session.synced
    play >> update(clusters("a=2"))
    assert not play.session.synced
    play << sends(CLUSTER, "a=2")
    assert not play.session.synced
    play >> ack(CLUSTER)
    assert play.session.synced
    play >> update(withdrawn(CLUSTER, "a"))
    assert not play.session.synced


def test_a_session_at_rest_asks_for_no_timer() -> None:
    play = connected(clusters("a=1"), routes("r=1"))
    play << nothing
    assert play.session.deadline() is None
    assert "current" in repr(play.session)
