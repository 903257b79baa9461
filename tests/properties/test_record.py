"""After any history, the record replayed is the present: the last entry of each hop states how it is verified now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.memory.causes import EditKind
from lasthop.engine.memory.codec import Encoder, Memory, decode
from lasthop.engine.memory.record import ChangeRecord, Entry
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.resolve.hops.verdict import VERDICTS, port_verification
from lasthop.engine.resolve.settings import SYSTEM_STORE
from tests.examples import slow
from tests.random_world import BASE, EDIT
from tests.snapshot import Snapshot, settle
from tests.world import NOW, STORE, key

STEPS = st.one_of(
    *[st.tuples(st.just("edit"), EDIT)] * 4,
    st.tuples(st.just("restart"), EDIT),
    st.tuples(st.just("hours"), st.integers(1, 300)),
)
Place = tuple[str, str, str, int]
"""(Gateway, kind of the backend, backend, port)."""
States = dict[Place, HopVerification]


def present(engine: Engine) -> States:
    ports = {member[:3] for member in engine.stages.members(VERDICTS) if member[3].policed}
    return {
        (gateway.path, backend.kind, backend.path, port): port_verification(engine.graph, gateway, backend, port)
        for gateway, backend, port in ports
    }


def connection(verification: HopVerification) -> object:
    """Returns what an audit compares of a hop: whether it connects, and how the backend is verified."""
    return verification.refused == "" and (
        verification.strength,
        verification.source,
        verification.names,
        verification.waiver,
        verification.basis,
    )


def started(objects: dict[Key, Object | None], now: float, memory: Memory | None) -> tuple[Engine, Snapshot]:
    engine, snapshot = Engine(now=now), Snapshot()
    SYSTEM_STORE.set(engine.graph, STORE)
    if memory:
        engine.verifications.recall(memory.ports, complete=True)
    engine.apply({obj_key: obj for obj_key, obj in objects.items() if obj is not None})
    settle(engine, snapshot)
    engine.verifications.started()
    return engine, snapshot


def check(entries: tuple[Entry, ...], before: States, after: States, causes: set[str] | None) -> None:
    """Compares the entries of one step with what really changed. `causes`: the edited objects; None if no edit was
    observed."""
    recorded = {(gateway, entry.kind, entry.backend, entry.port): entry for entry in entries for gateway in entry.gateways}
    assert sum(len(entry.gateways) for entry in entries) == len(recorded), "a hop changes once in a step"
    for place in before.keys() | after.keys():
        was, now, entry = before.get(place), after.get(place), recorded.pop(place, None)
        if (was and connection(was)) != (now and connection(now)):
            assert entry, f"{place} changed from {was} to {now}, and no entry says so"
        if entry:
            assert (entry.before, entry.after) == tuple(state.words if state else "" for state in (was, now))
            assert entry.because
    assert not recorded, "an entry of a hop that does not exist"
    for entry in entries:
        edited = {cause.object for cause in entry.causes if cause.edit is not EditKind.EXPIRED}
        assert edited <= (causes or set()), "an object that was not edited is named"
        assert edited or not causes, f"no edit is named: {entry}"


@settings(slow(60), suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=10, max_size=20))
def test_each_entry_is_what_changed_and_nothing_changes_without_one(steps: list[tuple[str, Any]]) -> None:
    objects, now, record = dict(BASE), NOW, ChangeRecord()
    engine, snapshot = started(objects, now.timestamp(), None)
    before = present(engine)
    for step, value in steps:
        causes: set[str] | None = set()
        if step == "hours":
            now += timedelta(hours=value)
            engine.advance(now.timestamp())
        else:
            changed = key(value[0])
            objects[changed] = None if value[1] else value[0]
            causes = {str(changed)} if step == "edit" else None
        if step == "edit":
            engine.apply({changed: objects[changed]})
        if step == "restart":
            stored = decode(Encoder()(Memory(engine.verifications.ports(), record.record)))
            assert isinstance(stored, Memory)
            engine, snapshot = started(objects, now.timestamp(), stored)
        settle(engine, snapshot)
        after = present(engine)
        check(record.add(engine.verifications.edits(), now.timestamp()), before, after, causes)
        before = after
    assert not record.record.faults() and engine.graph.crashes == {}
