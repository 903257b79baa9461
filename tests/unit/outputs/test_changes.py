"""The record of changes: bounded, fair, and the same whoever has seen a change first."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.changes import (
    MAX_CHANGES,
    MAX_INCIDENTS,
    Change,
    ChangeRecord,
    Edit,
    Incident,
    Record,
    bounded,
    joined,
    merged,
    since,
)
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import compare


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


def test_what_is_dropped_is_no_longer_covered_for_the_namespaces_of_backend_and_gateway() -> None:
    loud = [
        Change(1000.0 + at, "Service", "loud/api", 443, "a", "b", "c", gateways=("edge/web",)) for at in range(MAX_CHANGES + 5)
    ]
    found = joined(Record(tuple(loud), 1.0), Record((mk(2.0, "quiet/api"),), 500.0))
    assert found.since == 1.0 and len(found.changes) == MAX_CHANGES
    assert found.covered("loud") == found.covered("edge") == found.covered() == 1005.0
    assert found.covered("quiet") == 1.0
    again = joined(found, Record((), 1.0, {"loud": 5000.0, "quiet": 3.0}))
    assert (again.covered("loud"), again.covered("quiet"), again.covered("edge")) == (5000.0, 3.0, 1005.0)


def test_a_record_without_a_beginning_covers_nothing() -> None:
    assert Record((mk(1.0),)).covered() is None
    record = ChangeRecord()
    record.begin(5.0)
    record.begin(9.0)
    assert record.record.covered() == 5.0
    record.merge(Record((), 2.0))
    assert record.record.covered() == 2.0, "an earlier record goes on"


def test_incidents_are_few_and_the_latest() -> None:
    record = ChangeRecord()
    for at in range(2 * MAX_INCIDENTS):
        before = record.version
        record.note("x" * 10_000, float(at))
        assert record.version > before
    found = record.record.incidents
    assert [each.at for each in found] == [float(at) for at in range(MAX_INCIDENTS, 2 * MAX_INCIDENTS)]
    assert len(found[0].what) < 400
    assert joined(record.record, Record(incidents=(Incident(1e6, "new"),))).incidents[-1].what == "new"


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
