"""The size of responses, and their order if there are many."""

from __future__ import annotations

from lasthop.edge.xds.session import CHUNK, HEAVY_CHUNK, LONGEST_PACE, PACE, PATIENCE
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, ROUTES
from tests.unit.xds.playbook import (
    Playbook,
    ack,
    acked,
    clusters,
    connected,
    drain,
    endpoints,
    listeners,
    nothing,
    routes,
    sends,
    subscribe,
    update,
    wait,
)


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
    """68 ms instead of 1.1 s (docs/measurements.md#pacing)."""
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


# Route tables


def test_a_second_route_table_waits_for_the_answer_to_the_first() -> None:
    """Envoy builds one at a time, for seconds if it is huge; later messages of the stream wait as long."""
    play = connected(clusters("a=1"), listeners("l=1"), routes("r=1"))
    play >> update(routes("r=2")) << sends(ROUTES, "r=2") >> wait(LONGEST_PACE) >> update(routes("r=3")) << nothing
    assert play.session.busy(play.now)
    play >> update(clusters("a=2")) << sends(CLUSTER, "a=2") << nothing
    play >> wait(PATIENCE - LONGEST_PACE) << sends(ROUTES, "r=3")


def test_after_a_table_the_client_has_as_much_time_for_other_things_as_it_took() -> None:
    """Otherwise a cluster, and the endpoints it then requests, would each wait for one more table."""
    play = connected(clusters("a=1"), endpoints("a@1=1"), listeners("l=1"), routes("r=1"))
    play >> update(routes("r=2")) << sends(ROUTES, "r=2") >> wait(0.5) >> update(routes("r=3")) >> ack(ROUTES) << nothing
    assert not play.session.busy(play.now) and play.session.deadline() == play.now + 0.5
    play >> update(clusters("a=2"), endpoints("a@2=1")) << sends(CLUSTER, "a=2") << nothing
    play >> subscribe(ENDPOINTS, ("a@2",)) << sends(ENDPOINTS, "a@2=1") << nothing
    play >> wait(0.5) << sends(ROUTES, "r=3")


def test_a_requested_table_is_sent_in_that_time_too() -> None:
    play = connected(clusters("a=1"), listeners("l=1"), routes("r=1"))
    play >> update(routes("r=2", "new=1")) << sends(ROUTES, "r=2") >> wait(0.5) >> ack(ROUTES)
    play >> subscribe(ROUTES, ("new",)) << sends(ROUTES, "new=1")


def test_a_clock_set_back_does_not_prolong_it() -> None:
    play = connected(clusters("a=1"), listeners("l=1"), routes("r=1"))
    play >> update(routes("r=2")) << sends(ROUTES, "r=2") >> wait(0.5) >> ack(ROUTES) >> update(routes("r=3"))
    play >> wait(-3600) << sends(ROUTES, "r=3")
