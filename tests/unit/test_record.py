"""The record of changes: bounded, fair, its chain reveals every manipulation, and it is the same regardless of which replica
sees a change first."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.memory.record import (
    MAX_ENTRIES,
    MAX_NAMESPACES,
    ChangeRecord,
    Edit,
    Entry,
    Gap,
    Record,
    about_record,
    chained,
    digest_of,
    joined,
    sealed,
)
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import compare
from tests.records import mk_record

replace = msgspec.structs.replace


def mk(at: float, backend: str = "shop/api", *, weaker: bool = False, because: str = "p was deleted") -> Entry:
    return Entry(at, "Service", backend, 443, "verified (CA)", "plaintext", because, weaker)


def told(record: Record) -> list[tuple[float, str]]:
    return [(change.at, change.backend) for change in record.changes]


def test_many_changes_of_one_owner_drop_only_its_own() -> None:
    quiet = [mk(at, "quiet/api") for at in range(5)]
    loud = [mk(100 + at, f"loud/{at % 7}") for at in range(5 * MAX_ENTRIES)]
    record = mk_record((*quiet, *loud), 0.0)
    assert len(record.entries) <= MAX_ENTRIES
    assert [(entry.at, entry.backend) for entry in quiet] == told(record)[:5]
    assert record.changes[-1].at == loud[-1].at, "of the loud one the oldest are gone"
    assert not record.faults()


REDUCING = (mk(0, weaker=True), *(msgspec.structs.replace(mk(0), effect=f"{how}Reduced") for how in ("New", "Opened")))


@pytest.mark.parametrize("kept", REDUCING)
def test_entries_about_weaker_hops_and_new_weak_ones_are_kept_longer_than_others(kept: Entry) -> None:
    record = mk_record((kept, *(mk(1 + at) for at in range(2 * MAX_ENTRIES))))
    assert (record.changes[0].weaker, record.changes[0].effect) == (kept.weaker, kept.effect)
    assert record.changes[0].at == 0 and not record.faults()


found_changes = st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=60)


def mk_chain(drawn: list[tuple[int, str, bool]], limit: int) -> Record:
    changes = [mk(at, f"{owner}/api", weaker=weaker) for at, owner, weaker in drawn]
    chain = chained((about_record("Began", "no hops", 0.0), *changes), limit=limit)
    return Record(tuple(chain), chain[-1].hash)


@given(found_changes, st.integers(3, 20))
@example([(50, "a", True), (5, "b", True), (10, "a", False), (11, "b", False), (12, "b", False)], 5)
def test_the_last_change_of_a_hop_is_correct_or_unknown_after_drops_and_clock_changes(
    drawn: list[tuple[int, str, bool]], limit: int
) -> None:
    changes = [
        replace(mk(at, f"{owner}/api", weaker=weaker, because=str(number)), gateways=("edge/web",))
        for number, (at, owner, weaker) in enumerate(drawn)
    ]
    chain = chained((about_record("Began", "no hops", 0.0), *changes), limit=limit)
    known = {entry.backend: entry.because for entry in Record(tuple(chain), chain[-1].hash).last_changes().values()}
    truth = {change.backend: change.because for change in changes}
    assert known.items() <= truth.items()
    if len(changes) < limit:
        assert known == truth


@given(found_changes, st.integers(3, 20))
def test_it_is_never_larger_than_its_limit_and_never_broken_by_what_it_drops(
    drawn: list[tuple[int, str, bool]], limit: int
) -> None:
    """Also where the clock goes back, so that times are in any order."""
    record = mk_chain(drawn, limit)
    assert len(record.entries) <= limit
    assert record.faults() == ()
    assert record.since == 0.0
    kept = {(change.number, change.owner) for change in record.changes}
    for number, (at, owner, _) in enumerate(drawn, 2):
        covered = record.covered(owner)
        assert (number, owner) in kept or (covered is not None and at <= covered), "what is gone is not covered"


FORGED = Gap("", {"": 99.0})
EDITS: dict[str, Callable[[list[Entry], int, int], list[Entry]]] = {
    "removed": lambda entries, i, j: entries[:i] + entries[i + 1 :],
    "changed": lambda entries, i, j: [*entries[:i], replace(entries[i], after="verified"), *entries[i + 1 :]],
    "changed with its hash": lambda entries, i, j: [
        *entries[:i],
        sealed(replace(entries[i], after="verified"), entries[i - 1] if i else None),
        *entries[i + 1 :],
    ],
    "swapped": lambda entries, i, j: [entries[j] if n == i else entries[i] if n == j else e for n, e in enumerate(entries)],
    "inserted": lambda entries, i, j: [*entries[:i], sealed(mk(7.0), entries[i - 1] if i else None), *entries[i:]],
    "repeated": lambda entries, i, j: [*entries[:i], entries[j], *entries[i:]],
    "another time": lambda entries, i, j: [*entries[:i], replace(entries[i], at=entries[i].at + 1), *entries[i + 1 :]],
    "another gap": lambda entries, i, j: [
        *entries[:i],
        replace(entries[i], gap=FORGED),
        *entries[i + 1 :],
    ],
    "cut": lambda entries, i, j: entries[:i],
}


@given(found_changes, st.integers(3, 20), st.sampled_from(sorted(EDITS)), st.data())
def test_every_manipulation_of_an_entry_is_noticed(
    drawn: list[tuple[int, str, bool]], limit: int, name: str, data: st.DataObject
) -> None:
    record = mk_chain(drawn, limit)
    entries = list(record.entries)
    i, j = (data.draw(st.integers(0, len(entries) - 1)) for _ in "ij")
    edited = EDITS[name](entries, i, j)
    if edited != entries:
        assert replace(record, entries=tuple(edited)).faults()


@pytest.mark.parametrize("name", sorted(EDITS))
def test_entries_before_dropped_ones_cannot_be_changed_and_the_fault_outlives_later_drops(name: str) -> None:
    record = mk_chain([(at, "abcd"[at % 4], at % 3 == 0) for at in range(30)], 8)
    gap = max(at for at, entry in enumerate(record.entries) if entry.gap)
    for i in range(gap):
        broken = EDITS[name](list(record.entries), i, i + 1)
        assert Record(tuple(broken), record.head).faults(), i
        later = chained([mk(100.0 + at) for at in range(20)], broken, 8, record.head)
        assert Record(tuple(later), later[-1].hash).faults(), i


@given(found_changes, st.data())
def test_a_removed_line_cannot_be_passed_off_as_dropped_without_saying_until_when(
    drawn: list[tuple[int, str, bool]], data: st.DataObject
) -> None:
    """An added entry that states the gap must also state the time from which the record is complete."""
    record = mk_chain(sorted(drawn), MAX_ENTRIES)
    i = data.draw(st.integers(1, len(record.entries) - 1))
    entries = [*record.entries[:i], *record.entries[i + 1 :]]
    until = data.draw(st.floats(-10, 60))
    forged = sealed(replace(mk(99.0), gap=Gap(digest_of(entries), {"a": until})), record.entries[-1])
    found_faults = Record((*entries, forged), forged.hash).faults()
    assert found_faults or until >= record.entries[i - 1].at


def test_a_change_that_two_replicas_see_is_recorded_once() -> None:
    leader = mk_record([mk(1000.0), mk(1500.0)], 1.0)
    follower = mk_record([mk(1000.4), mk(1499.0), mk(1600.0, because="q was deleted")], 2.0)
    both = joined(leader, follower)
    assert told(both) == [(1000.0, "shop/api"), (1500.0, "shop/api"), (1600.0, "shop/api")]
    assert both.entries[:3] == leader.entries and not both.faults() and both.since == 1.0
    assert joined(both, follower) == joined(both, both) == both


def test_a_change_that_happens_twice_is_two_changes() -> None:
    flapping = [mk(1000.0), mk(1010.0), mk(1020.0)]
    times = [1000.0, 1010.0, 1020.0]
    again = joined(mk_record(flapping), mk_record([mk(1000.1), mk(1010.1), mk(1020.1)]))
    assert [change.at for change in again.changes] == times
    assert [change.at for change in joined(mk_record(flapping[:1]), mk_record([*flapping])).changes] == times


def test_a_record_that_goes_on_from_the_stored_one_is_that_one() -> None:
    record = ChangeRecord()
    record.begin("no hops", 1.0)
    before = record.record
    record.note("x", 2.0)
    assert joined(before, record.record) == record.record, "also where an old copy is stored"
    assert joined(record.record, before) == record.record


def test_a_broken_chain_stays_broken_unless_an_intact_one_is_known() -> None:
    own = mk_record([mk(1000.0 * at) for at in range(5)], 1.0)
    broken = replace(own, entries=own.entries[:2] + own.entries[3:], head=own.head)
    assert joined(broken, Record()).faults(), "it is not mended"
    later = joined(broken, mk_record([mk(90_000.0)], 2.0))
    assert later.faults() == ("entry 3 is missing",), "nor does it go on without its past"
    assert not joined(broken, own).faults() and told(joined(broken, own)) == told(own)


@pytest.mark.parametrize(("first", "last"), [pair for pair in itertools.combinations(range(7), 2) if pair != (0, 6)])
def test_a_start_on_a_record_that_lacks_entries_keeps_the_fault(first: int, last: int) -> None:
    stored = mk_record([mk(1000.0 * at) for at in range(1, 6)], 1.0)
    broken = replace(stored, entries=(*stored.entries[:first], *stored.entries[last:]))
    again = ChangeRecord()
    again.note("was edited", 9000.0)
    again.merge(broken)
    assert again.record.faults()
    again.note("more", 9001.0)
    assert again.record.faults() and joined(again.record, Record()).faults()
    later = joined(broken, mk_record((), 1.0, {"a": 5.0}))
    assert later.faults(), "nor does a note about a gap mend it"


@given(found_changes, found_changes, st.integers(3, 20))
def test_two_records_as_one_are_a_chain_that_says_what_is_missing_of_either(
    first: list[tuple[int, str, bool]], second: list[tuple[int, str, bool]], limit: int
) -> None:
    stored, own = mk_chain(first, limit), mk_chain(second, limit)
    both = joined(stored, own)
    assert both.faults() == ()
    for namespace in ("a", "b", "c", "d", ""):
        covered = [record.covered(namespace) or 0.0 for record in (stored, own)]
        assert (both.covered(namespace) or 0.0) >= max(covered)


def test_dropped_entries_reduce_the_coverage_of_both_namespaces() -> None:
    loud = [Entry(1000.0 + at, "Service", "loud/api", 443, "a", "b", "c", gateways=("edge/web",)) for at in range(MAX_ENTRIES)]
    record = mk_record((mk(2.0, "quiet/api"), *loud), 1.0)
    assert record.since == 1.0 and len(record.entries) < MAX_ENTRIES
    first = next(change.at for change in record.changes if change.owner == "loud")
    assert record.covered("loud") == record.covered("edge") == record.covered() == first - 1
    assert record.covered("quiet") == 1.0
    again = joined(record, mk_record((), 1.0, {"loud": 5000.0, "quiet": 3.0}))
    assert (again.covered("loud"), again.covered("quiet"), again.covered("edge")) == (5000.0, 3.0, first - 1)


def test_too_many_namespaces_to_name_are_all_incomplete() -> None:
    record = mk_record([mk(float(at), f"n{at}/api") for at in range(2 * MAX_ENTRIES + MAX_NAMESPACES)], 0.5)
    assert len(record.gap.until) <= MAX_NAMESPACES and not record.faults()
    assert (record.covered("elsewhere") or 0.0) > 0.5


def test_a_record_without_a_beginning_covers_nothing() -> None:
    assert mk_record((mk(1.0),)).covered() is None
    record = ChangeRecord()
    record.begin("no hops", 5.0)
    record.begin("no hops", 9.0)
    assert record.record.covered() == 5.0
    record.merge(mk_record((), 2.0))
    assert record.record.covered() == 2.0, "an earlier record goes on"
    assert joined(mk_record((), 2.0), mk_record((), 5.0), continued=False).covered() == 5.0, "unless it had not been read"


def test_incidents_are_part_of_the_chain_and_drop_no_other_changes() -> None:
    record = ChangeRecord()
    record.begin("no hops", 0.0)
    edit = Edit(Key("Service", "quiet", "b"), 1, None, HopVerification(Strength.PLAINTEXT), "x", compare(*[PLAIN] * 2), ())
    record.add([edit], 1.0)
    for at in range(2 * MAX_ENTRIES):
        before = record.version
        record.note("x" * 10_000, 2.0 + at)
        assert record.version > before
    kept = record.record
    assert kept.incidents[-1].at == 2.0 + 2 * MAX_ENTRIES - 1
    assert len(kept.incidents[0].because) < 400 and len(kept.entries) <= MAX_ENTRIES
    assert [change.owner for change in kept.changes] == ["quiet"] and not kept.faults()


PLAIN = HopVerification(Strength.PLAINTEXT)


def test_it_is_queried_by_time_and_by_namespace_of_backend_or_gateway() -> None:
    entries = [
        Entry(at, "Service", f"{ns}/api", 443, "a", "b", "c", gateways=("edge/web",)) for at, ns in ((1, "a"), (2, "b"))
    ]
    record = mk_record(entries)

    def asked(start: float, namespace: str = "") -> list[float]:
        return [entry.at for entry in record.entries_since(start, namespace)]

    assert (asked(2), asked(0, "a"), asked(0, "edge"), asked(0, "c"), asked(3)) == ([2], [1], [1, 2], [], [])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(0, 20))
def test_a_clock_that_is_set_back_hides_no_change(times: list[int], start: int) -> None:
    """A query since a time returns all entries recorded after the first entry of that time."""
    record = mk_record([mk(at) for at in times])
    numbers = [entry.number for entry in record.entries_since(start)]
    first = next((number for number, at in enumerate(times, 1) if at >= start), len(times) + 1)
    assert numbers == list(range(first, len(times) + 1))


def test_untrusted_text_is_cut() -> None:
    name = "x" * 10_000
    before = HopVerification(Strength.VERIFIED, names=(name,))
    edit = Edit(Key("Service", "a", "b"), 1, before, PLAIN, name, compare(before, PLAIN), ())
    (entry,) = ChangeRecord().add([edit], 1.5, lambda key: name)
    assert len(entry.before) < 400 and len(entry.because) < 400
    assert entry.at == 1.5


def test_merging_in_any_order_keeps_every_change() -> None:
    changes = [mk(1000.0 * at, f"{at % 3}/api") for at in range(50)]
    shuffled = changes[:]
    random.Random(1).shuffle(shuffled)
    both = joined(mk_record(shuffled[:20]), mk_record(shuffled[10:]))
    assert [change.at for change in both.changes] == [change.at for change in changes] and not both.faults()


def test_a_hop_whose_later_changes_may_have_been_dropped_has_no_last_change() -> None:
    record = mk_record((replace(mk(5.0), gateways=("edge/web",)),), 0.0)
    assert [entry.at for entry in record.last_changes().values()] == [5.0]
    for scope, until, known in (("shop", 4.0, 1), ("shop", 6.0, 0), ("other", 6.0, 1), ("", 4.0, 1), ("", 6.0, 0)):
        stated = sealed(
            replace(about_record("Incident", "x", 7.0), gap=Gap(digest_of(record.entries), {scope: until})), record.entries[-1]
        )
        assert len(replace(record, entries=(*record.entries, stated)).last_changes()) == known, (scope, until)
