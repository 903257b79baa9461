"""Rejected resources, and resources with an expiry."""

from __future__ import annotations

from lasthop.edge.xds.session import PACE, RETRY
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, SECRET
from tests.unit.xds.playbook import (
    START,
    ack,
    acked,
    clusters,
    connected,
    listeners,
    nack,
    nacked,
    nothing,
    said,
    secrets,
    sends,
    subscribe,
    update,
    wait,
    withdrawn,
)

# Refusals


def test_a_refused_resource_is_not_sent_again_until_it_changes() -> None:
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


def test_when_the_client_names_the_culprit_the_innocent_go_again_at_once() -> None:
    """Envoy has applied them but recorded neither their versions nor their timers."""
    text = "Error adding/updating cluster(s) b: bad CA"
    (
        connected(clusters("a=1", "b=1"))
        >> update(clusters("a=2", "b=2"))
        << sends(CLUSTER, "a=2", "b=2")
        >> nack(CLUSTER, text)
        << nacked(CLUSTER, "a=2", "b=2", detail=text)
        << sends(CLUSTER, "a=2")
        >> ack(CLUSTER)
        << acked(CLUSTER, "a=2")
        << nothing
        >> update(withdrawn(CLUSTER, "b", urgent=True))
        << sends(CLUSTER, "-b")
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


# Secrets


def test_each_secret_goes_alone_so_that_a_refused_one_holds_up_no_other() -> None:
    """Envoy does not say which one it refuses, and skips those after it in the same response."""
    play = connected() >> update(secrets("a=1", "b=1")) >> subscribe(SECRET, ("a", "b"))
    bad, good = (said(response).texts for response in (play.poll(), play.poll()) if response)
    assert len(bad) == len(good) == 1
    (
        play
        << nothing
        >> nack(SECRET, "no reason")
        << nacked(SECRET, *bad, detail="no reason")
        >> ack(SECRET)
        << acked(SECRET, *good)
        << nothing
    )
    assert play.session.decided and not play.session.synced
    name = bad[0].partition("=")[0]
    play >> update(withdrawn(SECRET, name)) << sends(SECRET, f"-{name}") >> ack(SECRET)
    assert play.session.synced
