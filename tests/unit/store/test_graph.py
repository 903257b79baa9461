"""The query graph: tracked reads, early cut-off, missing inputs, indexes, deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import FEW, Crash
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import GONE, Changes, Output, Stage, Stages, indexer
from tests.unit.store.words import WORDS, both, calls, graph, parity


def test_an_output_is_computed_once_and_then_only_when_something_it_read_changes() -> None:
    g = graph()
    WORDS.set(g.graph, "xx", "a")
    g.enter("things", ("a",))
    assert g.settle() == {"out": {("a",): "even -"}}
    calls.clear()
    WORDS.set(g.graph, "y", "other")
    assert g.settle() == {}
    assert calls == []


def test_an_equal_result_stops_the_wave() -> None:
    g = graph()
    WORDS.set(g.graph, "xx", "a")
    g.enter("things", ("a",))
    g.settle()
    calls.clear()
    WORDS.set(g.graph, "xxxx", "a")
    assert g.settle() == {}
    assert calls == [("length", "a"), ("parity", "a")]


def test_a_missing_input_that_appears_later_is_noticed() -> None:
    g = graph()
    g.enter("things", ("a",))
    assert g.settle() == {"out": {("a",): "even -"}}
    WORDS.set(g.graph, "!", "suffix")
    assert g.settle() == {"out": {("a",): "even !"}}
    WORDS.set(g.graph, None, "suffix")
    assert g.settle() == {"out": {("a",): "even -"}}


def test_a_change_that_is_taken_back_before_anyone_looks_is_no_change() -> None:
    g = graph()
    WORDS.set(g.graph, "x", "a")
    g.enter("things", ("a",))
    g.settle()
    calls.clear()
    WORDS.set(g.graph, "yy", "a")
    WORDS.set(g.graph, "x", "a")
    assert g.settle() == {}
    assert calls == []


@pytest.mark.parametrize("readers", [1, FEW, FEW + 1, 3 * FEW])
def test_every_reader_is_invalidated_by_a_change_and_unread_nodes_are_forgotten(readers: int) -> None:
    g = graph()
    members = [(f"m{number}",) for number in range(readers)]
    for member in members:
        g.enter("things", member)
    g.settle()
    for suffix in ("x", "y"):  # the second time they are its readers already
        WORDS.set(g.graph, suffix, "suffix")
        assert g.settle() == {"out": {member: f"even {suffix}" for member in members}}
    assert len(g.graph.readers_at((WORDS, "suffix"))) == readers
    for member in members[1:]:
        g.leave("things", member)
    g.settle()
    assert g.graph.readers_at((WORDS, "suffix")) == ((both, "m0"),)
    g.leave("things", members[0])
    g.settle()
    assert not g.graph.nodes


def test_a_member_that_leaves_is_gone_and_forgotten() -> None:
    g = graph()
    g.enter("things", ("a",))
    g.settle()
    g.leave("things", ("a",))
    assert g.settle() == {"out": {("a",): GONE}}
    assert g.graph.reads_at((both, "a")) == ()
    assert g.graph.nodes == {}


def test_a_member_that_comes_and_goes_between_two_looks_was_never_there() -> None:
    g = graph()
    g.enter("things", ("a",))
    g.leave("things", ("a",))
    assert g.settle() == {}


def test_reads_are_recorded_for_explain() -> None:
    g = graph()
    WORDS.set(g.graph, "x", "a")
    g.enter("things", ("a",))
    g.settle()
    assert g.graph.reads_at((both, "a")) == ((parity, "a"), (WORDS, "suffix"))


LETTERS = Index[str, tuple[str, int]]("letter")


@indexer("word")
def by_letter(g: Graph, key: Key) -> Iterator[Entry]:
    word = WORDS.of(g, key) or ""
    for letter in set(word):
        yield LETTERS.entry((letter,), (str(key), word.count(letter)))


@query
def words_with(g: Graph, letter: str) -> tuple[str, ...]:
    return tuple(f"{member}:{count}" for member, count in LETTERS.of(g, letter))


@query
def how_many(g: Graph, letter: str) -> int:
    return LETTERS.size(g, letter)


def letters() -> Stages:
    stages: list[Stage] = [
        by_letter,
        Output("words", LETTERS, words_with),
        Output("size", LETTERS, how_many),
    ]
    return Stages(Graph(), stages)


def put(g: Stages, key: str, word: str | None) -> None:
    known = WORDS.peek(g.graph, key) is not None
    WORDS.set(g.graph, word, key)
    if word is None:
        g.leave("word", (key,))
    elif not known:
        g.enter("word", (key,))


def test_indexes_follow_their_members_and_are_the_domain_of_a_later_stage() -> None:
    g = letters()
    put(g, "one", "ab")
    put(g, "two", "b")
    assert g.settle()["words"] == {("a",): ("one:1",), ("b",): ("one:1", "two:1")}
    put(g, "one", "bb")
    changed = g.settle()
    assert changed["words"] == {("a",): GONE, ("b",): ("one:2", "two:1")}
    assert changed["size"] == {("a",): GONE}


def test_a_counter_is_read_without_reading_the_members() -> None:
    g = letters()
    for number in range(50):
        put(g, f"w{number}", "a")
    g.settle()
    g.graph.reads = 0
    how_many(g.graph, "a")
    put(g, "another", "a")
    changed = g.settle()
    assert changed["size"] == {("a",): 51}


@query
def expired(g: Graph, key: str) -> str:
    return "valid" if g.before(WORDS.of(g, key) or 0.0) else "expired"


def test_a_deadline_is_an_input_that_changes_by_itself() -> None:
    g = Stages(Graph(100.0), [Output("certificates", "certificate", expired)])
    WORDS.set(g.graph, 150.0, "cert")
    g.enter("certificate", ("cert",))
    assert g.settle() == {"certificates": {("cert",): "valid"}}
    assert g.graph.next_deadline() == 150.0
    g.graph.advance(149.9)
    assert g.settle() == {}
    g.graph.advance(150.0)
    assert g.settle() == {"certificates": {("cert",): "expired"}}


@query
def brittle(g: Graph, key: str) -> str:
    word = WORDS.of(g, key)
    if word == "bad":
        raise ValueError("no")
    return str(word)


def test_a_query_that_raises_withholds_its_own_output_and_recovers() -> None:
    g = Stages(Graph(), [Output("out", "word", brittle)])
    put(g, "a", "bad")
    put(g, "b", "fine")
    assert g.settle() == {"out": {("a",): None, ("b",): "fine"}}
    assert list(g.graph.crashes) == [(brittle, "a")]
    put(g, "a", "good")
    assert g.settle() == {"out": {("a",): "good"}}
    assert g.graph.crashes == {}


@query
def leaning(g: Graph, key: str) -> str:
    return brittle(g, key) + "!"


@query
def steady(g: Graph, key: str) -> str:
    attempted = brittle.attempt(g, key)
    return "stand-in" if isinstance(attempted, Crash) else attempted


def test_a_crash_goes_as_far_as_those_who_call_and_not_past_those_who_attempt() -> None:
    g = Stages(Graph(), [Output("leaning", "word", leaning), Output("steady", "word", steady)])
    put(g, "a", "bad")
    assert g.settle() == {"leaning": {("a",): None}, "steady": {("a",): "stand-in"}}
    assert list(g.graph.crashes) == [(brittle, "a")]  # the one at fault, not all who read it
    assert "test_graph.py" in g.graph.crashes[brittle, "a"].where
    with pytest.raises(ValueError, match="no"):
        leaning(g.graph, "a")
    assert isinstance(leaning.attempt(g.graph, "a"), Crash)
    put(g, "a", None)
    g.settle()
    assert g.graph.crashes == {}


CLAIMS = Index[str, bool]("claim")


def claim(g: Graph, key: Key) -> Iterator[Entry]:
    yield CLAIMS.entry((brittle(g, str(key)),), True)


@query
def claimed(g: Graph, word: str) -> int:
    return CLAIMS.size(g, word)


@pytest.mark.parametrize(("keeps", "left"), [(True, 1), (False, GONE)])
def test_a_crashed_indexer_keeps_its_entries_only_if_configured(keeps: bool, left: object) -> None:
    g = Stages(Graph(), [indexer("word", keep_on_crash=keeps)(claim), Output("claimed", CLAIMS, claimed)])
    put(g, "a", "x")
    assert g.settle() == {"claimed": {("x",): 1}}
    put(g, "a", "bad")
    assert g.settle().get("claimed", {("x",): 1}) == {("x",): left}
    put(g, "a", None)
    g.settle()
    assert CLAIMS.size(g.graph, "x") == 0


def test_a_key_is_positional_and_an_argument_that_would_be_dropped_is_refused() -> None:
    g = Stages(Graph(), ())
    for call in (brittle, brittle.attempt):
        with pytest.raises(TypeError):
            call(g.graph, key="a")  # type: ignore[call-arg]


words = st.text("abc", max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), st.none() | words, st.booleans()), max_size=30))
def test_after_any_edits_the_outputs_are_what_a_fresh_graph_gives(edits: list[tuple[str, str | None, bool]]) -> None:
    g, state = letters(), {}
    outputs: dict[str, dict[Any, Any]] = {"words": {}, "size": {}}
    for key, word, look in edits:
        put(g, key, word)
        state[key] = word
        if look:
            _merge(outputs, g.settle())
    _merge(outputs, g.settle())
    fresh = letters()
    for key, word in state.items():
        if word is not None:
            put(fresh, key, word)
    expected: dict[str, dict[Any, Any]] = {"words": {}, "size": {}}
    _merge(expected, fresh.settle())
    assert outputs == expected


def _merge(into: dict[str, dict[Any, Any]], changes: Changes) -> None:
    for name, key, value in _flat(changes):
        if value is GONE:
            into[name].pop(key, None)
        else:
            into[name][key] = value


def _flat(changes: Changes) -> Iterator[tuple[str, Any, Any]]:
    for name, values in changes.items():
        for key, value in values.items():
            yield name, key, value
