"""After any sequence of edits, the incremental result equals that of a fresh engine on the final state."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.resolve.settings import HELD, SYSTEM_STORE
from tests.examples import slow
from tests.properties.promises import PREPARED
from tests.random_world import BASE, EDITS, OBJECTS, Edit
from tests.snapshot import Snapshot, said, settle, settled, told
from tests.world import NOW, STORE, key


@slow(100)
@given(EDITS)
def test_incremental_equals_from_scratch(edits: list[Edit]) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = PREPARED()
    for obj, delete, look in edits:
        change = None if delete else obj
        engine.apply({key(obj): change})
        objects[key(obj)] = change
        if look:
            settle(engine, snapshot)
    settle(engine, snapshot)
    other, expected = settled({k: v for k, v in objects.items() if v is not None}, store=STORE)
    assert engine.graph.crashes == other.graph.crashes == {}
    assert snapshot.xds == expected.xds
    assert said(snapshot.status) == said(expected.status)
    assert told(engine.findings()) == told(other.findings())


@slow(60)
@given(EDITS, st.integers(1, 5))
def test_settling_in_slices_comes_to_the_same_end(edits: list[Edit], limit: int) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = PREPARED()
    for obj, delete, _ in edits:
        objects[key(obj)] = None if delete else obj
        engine.apply({key(obj): objects[key(obj)]})
        snapshot.take(engine.settle(limit))
    while engine.unsettled:
        snapshot.take(engine.settle(limit))
    settle(engine, snapshot)
    _, expected = settled({k: v for k, v in objects.items() if v is not None}, store=STORE)
    assert snapshot.xds == expected.xds
    assert said(snapshot.status) == said(expected.status)


@slow(40)
@given(st.lists(OBJECTS, max_size=15), st.randoms())
def test_the_order_in_which_objects_arrive_does_not_matter(objects: list[Object], random: object) -> None:
    world = {**BASE, **{key(obj): obj for obj in objects}}
    shuffled = list(world.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    engine, snapshot = Engine(now=NOW.timestamp()), Snapshot()
    SYSTEM_STORE.set(engine.graph, STORE)
    for name, obj in shuffled:
        engine.apply({name: obj})
        settle(engine, snapshot)
    _, expected = settled(world, store=STORE)
    assert snapshot.xds == expected.xds
    assert said(snapshot.status) == said(expected.status)


@slow(60)
@given(EDITS, st.sampled_from([1, 5, 30, 400]))
def test_time_that_passes_is_an_edit_like_any_other(edits: list[Edit], days: int) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = PREPARED()
    for obj, delete, _ in edits:
        objects[key(obj)] = None if delete else obj
    engine.apply(objects)
    settle(engine, snapshot)
    later = (NOW + timedelta(days=days)).timestamp()
    engine.advance(later)
    settle(engine, snapshot)
    other, expected = settled({k: v for k, v in objects.items() if v is not None}, now=later, store=STORE)
    assert engine.graph.crashes == other.graph.crashes == {}
    assert snapshot.xds == expected.xds
    assert said(snapshot.status) == said(expected.status)
    assert told(engine.findings()) == told(other.findings())


def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    engine, snapshot = PREPARED()
    engine.apply(dict.fromkeys(BASE))
    settle(engine, snapshot)
    assert snapshot.xds == {}
    assert snapshot.status == {}
    assert engine.graph.listed == {}
    assert not [id for id in engine.graph.inputs if id[0] is HELD]
    assert not [node for node in engine.graph.nodes.values() if node.pinned]
