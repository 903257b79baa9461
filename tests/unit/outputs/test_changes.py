"""The record of changes: bounded, fair, and the same whoever has seen a change first."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lasthop.api.meta import Key
from lasthop.outputs.audit.changes import MAX_CHANGES, Change, ChangeRecord, Edit, bounded, merged, since
from lasthop.plan.verification import HopVerification, Strength
from lasthop.plan.verification_change import compare


def mk(at: float, backend: str = "shop/api", *, weaker: bool = False, because: str = "p was deleted") -> Change:
    return Change(at, "Service", backend, 443, "verified (CA)", "plaintext", because, weaker)


def test_many_changes_of_one_owner_push_nobody_elses_out() -> None:
    quiet = [mk(at, "quiet/api") for at in range(5)]
    loud = [mk(100 + at, f"loud/{at % 7}") for at in range(5 * MAX_CHANGES)]
    kept = bounded((*quiet, *loud))
    assert len(kept) == MAX_CHANGES
    assert set(quiet) <= set(kept)
    assert kept[-1] == loud[-1], "of the loud one the oldest are gone"


def test_what_weakened_something_is_kept_longer_than_the_rest() -> None:
    weakening = mk(0, weaker=True)
    assert weakening in bounded((weakening, *(mk(1 + at) for at in range(2 * MAX_CHANGES))))


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcd"), st.booleans()), max_size=60), st.integers(1, 20))
def test_it_is_never_larger_than_its_limit_and_in_the_order_of_time(found: list[tuple[int, str, bool]], limit: int) -> None:
    changes = [mk(at, f"{owner}/api", weaker=weaker) for at, owner, weaker in found]
    kept = bounded(changes, limit)
    assert len(kept) == min(limit, len(changes))
    assert list(kept) == sorted(kept)


def test_what_two_replicas_have_seen_is_recorded_once() -> None:
    leader, follower = [mk(1000.0), mk(1500.0)], [mk(1000.4), mk(1499.0), mk(1600.0, because="q was deleted")]
    assert merged(leader, follower) == (*leader, follower[2])
    assert merged(merged(leader, follower), follower) == merged(leader, follower)


def test_a_change_that_happens_twice_is_two_changes() -> None:
    flapping = [mk(1000.0), mk(1010.0), mk(1020.0)]
    assert merged(flapping, [mk(1000.1), mk(1010.1), mk(1020.1)]) == tuple(flapping)
    assert len(merged(flapping[:1], flapping)) == 3


def test_it_is_asked_by_time_and_by_namespace_of_backend_or_gateway() -> None:
    found = [Change(at, "Service", f"{ns}/api", 443, "a", "b", "c", gateways=("edge/web",)) for at, ns in ((1, "a"), (2, "b"))]
    assert since(found, 2) == (found[1],)
    assert since(found, 0, "a") == (found[0],)
    assert since(found, 0, "edge") == tuple(found)
    assert since(found, 0, "c") == ()


def test_what_strangers_wrote_is_cut() -> None:
    name = "x" * 10_000
    before = HopVerification(Strength.VERIFIED, names=(name,))
    after = HopVerification(Strength.PLAINTEXT)
    edit = Edit(Key("Service", "a", "b"), 1, before, after, name, compare(before, after), ())
    (found,) = ChangeRecord().add([edit], 1.5)
    assert len(found.before) < 400 and len(found.because) < 400
    assert found.at == 1.5


def test_merging_in_any_order_keeps_every_change() -> None:
    changes = [mk(1000.0 * at, f"{at % 3}/api") for at in range(50)]
    shuffled = changes[:]
    random.Random(1).shuffle(shuffled)
    assert merged(shuffled[:20], shuffled[10:]) == tuple(changes)
