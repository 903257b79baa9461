"""How much is sent at a time, and what goes first when there is more."""

from __future__ import annotations

from xds_playbook import (
    Playbook,
    ack,
    acked,
    clusters,
    connected,
    drain,
    endpoints,
    nothing,
    routes,
    sends,
    subscribe,
    update,
    wait,
)

from lasthop.outputs.envoy.resource import CLUSTER, ENDPOINTS, ROUTES
from lasthop.xds.session import CHUNK, HEAVY_CHUNK, PACE


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
