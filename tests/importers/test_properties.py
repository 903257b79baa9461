"""Checks every importer's promises over random input of its system: no hop loses its TLS, and every loss is reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lasthop.engine.plan.strength import Strength
from lasthop_import.decisions import Decisions
from lasthop_import.documents import Document, SourceText
from lasthop_import.levels import NewState
from lasthop_import.notes import Category
from lasthop_import.registry import SYSTEMS
from lasthop_import.result import SERIOUS
from tests.importers import promises
from tests.importers.harness import Outcome, run_values
from tests.importers.harness import settings as import_settings
from tests.importers.random_inputs import WORLDS

EXAMPLES = 40
each_system = pytest.mark.parametrize("system", list(WORLDS))
some = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


def imported(system: str, data: st.DataObject) -> Outcome:
    world = WORLDS[system]
    return run_values(system, [*data.draw(world.documents), *world.around], Decisions(), import_settings())


def test_every_system_has_random_inputs() -> None:
    assert WORLDS.keys() == SYSTEMS.keys()


@each_system
@some
@given(data=st.data())
def test_every_import_keeps_its_promises(system: str, data: st.DataObject) -> None:
    outcome = imported(system, data)
    promises.assert_promises(system, outcome)


@each_system
@some
@given(data=st.data())
def test_the_same_input_in_any_order_gives_the_same_bytes(system: str, data: st.DataObject) -> None:
    outcome = imported(system, data)
    promises.assert_repeatable(system, outcome, data.draw(st.integers(0, 1000)))


@each_system
@some
@given(data=st.data())
def test_check_finds_only_todos_and_audit_agrees_with_the_report(system: str, data: st.DataObject) -> None:
    outcome = imported(system, data)
    promises.assert_check_has_only_todos(outcome)


@each_system
@some
@given(data=st.data())
def test_decisions_close_every_question_and_the_next_import_changes_nothing(system: str, data: st.DataObject) -> None:
    outcome = imported(system, data)
    promises.assert_decisions_close_all_questions(system, outcome)


def mappings(value: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    found = [path] if isinstance(value, dict) else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*found, *(below for step, each in inside for below in mappings(each, (*path, step)))]


@each_system
@some
@given(data=st.data())
def test_a_field_that_nobody_knows_is_listed_wherever_it_is(system: str, data: st.DataObject) -> None:
    """Adds a field to some mapping of some object of the system; it, or something that contains it, must be listed."""
    documents = copy.deepcopy(data.draw(WORLDS[system].documents))
    kinds = {(kind.group, kind.kind) for kind in SYSTEMS[system].kinds}
    own = [each for each in documents if (each["apiVersion"].rpartition("/")[0], each["kind"]) in kinds and "spec" in each]
    assume(own)
    chosen = data.draw(st.sampled_from(own))
    places = mappings(chosen["spec"], ("spec",))
    place = data.draw(st.sampled_from(places))
    value: Any = chosen
    for step in place:
        value = value[step]
    value["zzUnknown"] = {"a": 1}
    outcome = run_values(system, [*documents, *WORLDS[system].around], Decisions(), import_settings())
    wanted = (*place, "zzUnknown")
    name = Document(chosen, SourceText("")).name
    listed = [note.source for note in outcome.result.notes if note.source and note.source.object == name]
    skipped = any(note.category is Category.SKIPPED and note.source in listed for note in outcome.result.notes)
    assert skipped or any(source.path and wanted[: len(source.path)] == source.path for source in listed), (name, wanted)


REMOVABLE = ("Service", "Secret", "ConfigMap", "Namespace", "IngressClass", "Gateway", "EndpointSlice")
SECURITY = (Category.DECISION, Category.BELIEVED, Category.ACCESS_CONTROL)


def states(outcome: Outcome) -> dict[tuple[str, str, str], set[NewState]]:
    """Returns what becomes of the hops of each field, by the backend without its port."""
    found: dict[tuple[str, str, str], set[NewState]] = {}
    for row in outcome.result.rows:
        backend = row.backend.partition(" ")[2].rpartition(":")[0]
        found.setdefault((row.source.object, row.source.field, backend), set()).add(row.new)
    return found


@each_system
@some
@given(data=st.data())
def test_removing_an_object_weakens_no_hop_and_hides_no_decision(system: str, data: st.DataObject) -> None:
    world = WORLDS[system]
    documents = [*data.draw(world.documents), *world.around]
    removable = [number for number, each in enumerate(documents) if each["kind"] in REMOVABLE]
    assume(removable)
    gone = data.draw(st.sampled_from(removable))
    whole = run_values(system, documents, Decisions(), import_settings())
    half = run_values(system, [*documents[:gone], *documents[gone + 1 :]], Decisions(), import_settings())
    before, after = states(whole), states(half)
    for place, now in after.items():
        was = before.get(place, set())
        if Strength.PLAINTEXT in {each.strength for each in now}:
            assert not was or Strength.PLAINTEXT in {each.strength for each in was}, (documents[gone], place, was, now)
    if any(note.category in SECURITY and note.level in SERIOUS for note in whole.result.notes):
        assert half.result.exit_code() != 0, documents[gone]
