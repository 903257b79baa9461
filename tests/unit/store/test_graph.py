"""The query graph: tracked reads, early cut-off, missing inputs, buckets, deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lasthop.store.graph import GONE, Emitter, Graph, Output

calls: list[tuple[str, Any]] = []


def length(g: Graph, key: str) -> int:
    calls.append(("length", key))
    return len(g.input(key) or "")


def parity(g: Graph, key: str) -> str:
    calls.append(("parity", key))
    return "even" if g(length, key) % 2 == 0 else "odd"


def both(g: Graph, key: str) -> str:
    calls.append(("both", key))
    return f"{g(parity, key)} {g.input('suffix') or '-'}"


def graph() -> Graph:
    calls.clear()
    return Graph([Output("out", "things", both)])


def test_an_output_is_computed_once_and_then_only_when_something_it_read_changes() -> None:
    g = graph()
    g.set("a", "xx")
    g.enter("things", ("a",))
    assert g.settle() == {"out": {("a",): "even -"}}
    calls.clear()
    g.set("other", "y")
    assert g.settle() == {}
    assert calls == []


def test_an_equal_result_stops_the_wave() -> None:
    g = graph()
    g.set("a", "xx")
    g.enter("things", ("a",))
    g.settle()
    calls.clear()
    g.set("a", "xxxx")
    assert g.settle() == {}
    assert calls == [("length", "a"), ("parity", "a")]


def test_a_missing_input_that_appears_later_is_noticed() -> None:
    g = graph()
    g.enter("things", ("a",))
    assert g.settle() == {"out": {("a",): "even -"}}
    g.set("suffix", "!")
    assert g.settle() == {"out": {("a",): "even !"}}
    g.set("suffix", None)
    assert g.settle() == {"out": {("a",): "even -"}}


def test_a_change_that_is_taken_back_before_anyone_looks_is_no_change() -> None:
    g = graph()
    g.set("a", "x")
    g.enter("things", ("a",))
    g.settle()
    calls.clear()
    g.set("a", "yy")
    g.set("a", "x")
    assert g.settle() == {}
    assert calls == []


def test_a_member_that_leaves_is_gone_and_forgotten() -> None:
    g = graph()
    g.enter("things", ("a",))
    g.settle()
    g.leave("things", ("a",))
    assert g.settle() == {"out": {("a",): GONE}}
    assert g.reads_of(both, "a") == ()
    assert g._nodes == {}


def test_a_member_that_comes_and_goes_between_two_looks_was_never_there() -> None:
    g = graph()
    g.enter("things", ("a",))
    g.leave("things", ("a",))
    assert g.settle() == {}


def test_reads_are_recorded_for_explain() -> None:
    g = graph()
    g.set("a", "x")
    g.enter("things", ("a",))
    g.settle()
    assert g.reads_of(both, "a") == ((parity, "a"), ("input", "suffix"))


def by_letter(g: Graph, key: str) -> tuple[tuple[tuple[str, str], int], ...]:
    word = g.input(key) or ""
    return tuple((("letter", letter), word.count(letter)) for letter in sorted(set(word)))


def words_with(g: Graph, letter: str) -> tuple[str, ...]:
    return tuple(f"{member}:{count}" for (member,), count in g.bucket("letter", letter))


def how_many(g: Graph, letter: str) -> int:
    return g.size("letter", letter)


def letters() -> Graph:
    stages = [
        Emitter("by-letter", "word", by_letter),
        Output("words", "letter", words_with),
        Output("size", "letter", how_many),
    ]
    return Graph(stages)


def put(g: Graph, key: str, word: str | None) -> None:
    known = g.peek(key) is not None
    g.set(key, word)
    if word is None:
        g.leave("word", (key,))
    elif not known:
        g.enter("word", (key,))


def test_buckets_follow_their_members_and_are_the_domain_of_a_later_stage() -> None:
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
    g.reads = 0
    g.value(how_many, "a")
    put(g, "another", "a")
    changed = g.settle()
    assert changed["size"] == {("a",): 51}


def expired(g: Graph, key: str) -> str:
    return "valid" if g.before(g.input(key)) else "expired"


def test_a_deadline_is_an_input_that_changes_by_itself() -> None:
    g = Graph([Output("certificates", "certificate", expired)], now=100.0)
    g.set("cert", 150.0)
    g.enter("certificate", ("cert",))
    assert g.settle() == {"certificates": {("cert",): "valid"}}
    assert g.next_deadline() == 150.0
    g.advance(149.9)
    assert g.settle() == {}
    g.advance(150.0)
    assert g.settle() == {"certificates": {("cert",): "expired"}}


def brittle(g: Graph, key: str) -> str:
    word = g.input(key)
    if word == "bad":
        raise ValueError("no")
    return str(word)


def test_a_query_that_raises_withholds_its_own_output_and_recovers() -> None:
    g = Graph([Output("out", "word", brittle)])
    put(g, "a", "bad")
    put(g, "b", "fine")
    assert g.settle() == {"out": {("a",): None, ("b",): "fine"}}
    assert [key for _, key in g.crashes] == [("a",)]
    put(g, "a", "good")
    assert g.settle() == {"out": {("a",): "good"}}
    assert g.crashes == {}


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


def _merge(into: dict[str, dict[Any, Any]], changes: dict[str, dict[Any, Any]]) -> None:
    for name, key, value in _flat(changes):
        if value is GONE:
            into[name].pop(key, None)
        else:
            into[name][key] = value


def _flat(changes: dict[str, dict[Any, Any]]) -> Iterator[tuple[str, Any, Any]]:
    for name, values in changes.items():
        for key, value in values.items():
            yield name, key, value


def test_a_limited_settle_looks_at_the_latest_change_first_and_comes_to_the_same_end() -> None:
    g = graph()
    for number in range(10):
        g.enter("things", (f"t{number}",))
    seen: list[str] = []
    while g.unsettled:
        seen += [key for (key,) in g.settle(limit=3)["out"]]
        if len(seen) == 3:
            g.set("suffix", "!")
            g.enter("things", ("urgent",))
    assert seen[:3] == ["t9", "t8", "t7"]
    assert seen[3] == "urgent"
    assert {key for (key,) in g.members("out")} == {*(f"t{number}" for number in range(10)), "urgent"}
    assert set(g.members("out").values()) == {"even !"}


def test_what_names_others_waits_for_those_that_nobody_has_been_told_of() -> None:
    stages = [Output("clusters", "thing", length, named=True), Output("routes", "thing", both, names=True)]
    g = Graph(stages)
    for number in range(3):
        g.enter("thing", (f"t{number}",))
    assert set(g.settle(limit=2)) == {"clusters"}
    assert set(g.settle(limit=2)) == {"clusters", "routes"}
    while g.unsettled:
        g.settle(limit=2)
    for number in range(3):
        g.set(f"t{number}", "x")
    assert set(g.settle(limit=2)) == {"clusters", "routes"}
