"""When a replica gives its proxies away: it has lost the API server, and another one has not."""

from __future__ import annotations

import pytest

from lasthop.edge.kubernetes.contact import FRESH, LOST_AFTER_SECONDS, Contact


def silent(failures: int = 2) -> Contact:
    contact = Contact(100.0)
    for _ in range(failures):
        contact.failed()
    return contact


@pytest.mark.parametrize(
    ("failures", "age", "peer", "cut_off"),
    [
        (2, LOST_AFTER_SECONDS, 0.0, True),
        (2, LOST_AFTER_SECONDS, FRESH, True),
        (2, LOST_AFTER_SECONDS - 0.1, 0.0, False),  # not for long
        (2, LOST_AFTER_SECONDS, FRESH + 0.1, False),  # the other one may have lost it too
        (2, LOST_AFTER_SECONDS, LOST_AFTER_SECONDS, False),
        (1, LOST_AFTER_SECONDS, 0.0, False),  # this process was frozen
        (0, 3600.0, 0.0, False),
        (2, LOST_AFTER_SECONDS, -1.0, False),
        (2, LOST_AFTER_SECONDS, float("nan"), False),
    ],
)
def test_a_replica_is_cut_off_if_it_alone_has_lost_the_api_server(
    failures: int, age: float, peer: float, cut_off: bool
) -> None:
    contact = silent(failures)
    contact.record_peer_contact(peer, 100.0 + age)
    assert contact.cut_off is cut_off


def test_replicas_that_lose_the_api_server_together_never_convince_each_other() -> None:
    one, other = silent(), silent()
    one.heard(100.9)  # its last answer came later
    for contact in (one, other):
        for _ in range(2):
            contact.failed()
    for tenth in range(600):
        now = 101.0 + tenth / 10
        one.record_peer_contact(other.age(now), now)
        other.record_peer_contact(one.age(now), now)
    assert not one.cut_off and not other.cut_off


def test_it_stays_cut_off_until_the_api_server_is_heard() -> None:
    contact = silent()
    contact.record_peer_contact(0.0, 200.0)
    contact.record_peer_contact(3600.0, 201.0)
    contact.heard(100.0)  # nothing new
    assert contact.cut_off
    contact.heard(202.0)
    assert not contact.cut_off and contact.age(203.0) == 1.0
    contact.failed()
    contact.record_peer_contact(0.0, 300.0)
    assert not contact.cut_off, "failures are counted from the last answer on"
