"""Gates, summaries and shared nodes: after any additions, removals and changes, they list the same as plain indexers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index, Input
from lasthop.engine.store.stages import Gate, Indexer, Output, Stages, indexer

SIZE = 3
VALUES = Input[int, int]("value")
MEMBERS = Index[int, bool]("member")
GATED, PLAIN, CONSTANT = Index[int, int]("gated"), Index[int, int]("plain"), Index[int, int]("constant")
HIGHEST = GATED.summary("highest", lambda values: max(values, default=0))


class BrokenValueError(Exception):
    pass


@query
def value(g: Graph, number: int) -> int:
    stored = VALUES.of(g, number) or 0
    if stored == 13:
        raise BrokenValueError
    return stored % 7


NUMBERS = Index[int, bool]("number")


@indexer(NUMBERS)
def index_members(g: Graph, key: int) -> Iterator[Entry]:
    yield MEMBERS.entry((key,), True)


def listing(index: Index[int, int], gate: Gate | None) -> Indexer:
    @indexer(MEMBERS, only_where=gate)
    def listed(g: Graph, number: int) -> Iterator[Entry]:
        remainder = value(g, number)
        if remainder > 3:
            yield index.entry((0,), remainder + (VALUES.of(g, number + 1) or 0))

    listed.entries.fn.__name__ = index.name
    return Indexer(index.name, listed.domains, listed.entries, only_where=gate)


@indexer(MEMBERS)
def index_constants(g: Graph, number: int) -> Iterator[Entry]:
    yield CONSTANT.entry((0,), number)


def stages() -> Stages:
    gate = Gate(value, lambda remainder: remainder > 3)
    shown = Output("values", MEMBERS, value)
    return Stages(Graph(), [index_members, listing(GATED, gate), listing(PLAIN, None), index_constants, shown])


numbers = st.integers(0, SIZE - 1)
steps = st.tuples(numbers, st.integers(0, 14) | st.booleans())
"""A new value of a number, or whether it is a member from now on."""


@given(st.lists(st.tuples(steps, st.booleans()), max_size=40))
def test_an_indexer_behind_a_gate_lists_what_it_would_without_one(
    history: list[tuple[tuple[int, int | bool], bool]],
) -> None:
    made, members = stages(), set[int]()
    g = made.graph
    for (number, step), settle in [*history, ((0, 0), True)]:
        if step is True:
            members.add(number)
            made.enter(NUMBERS, (number,))
        elif step is False:
            members.discard(number)
            made.leave(NUMBERS, (number,))
        else:
            VALUES.set(g, step, number)
        if settle:
            made.settle()
            assert GATED.of(g, 0) == PLAIN.of(g, 0)
            assert HIGHEST.of(g, 0) == max(PLAIN.of(g, 0), default=0)
            assert set(CONSTANT.of(g, 0)) == members
    for number in members:
        made.leave(NUMBERS, (number,))
    made.settle()
    assert not [node for node in g.nodes.values() if node.pinned]
    assert not g.nodes


def test_members_of_a_closed_gate_and_those_that_read_nothing_have_no_node() -> None:
    made = stages()
    for number in range(SIZE):
        VALUES.set(made.graph, 1, number)
        made.enter(NUMBERS, (number,))
    made.settle()
    # One for each: the input, its value, and the plain indexer.
    assert len(made.graph.nodes) == 3 * SIZE


@pytest.mark.parametrize("first", [1, 5, 13])
@pytest.mark.parametrize("then", [1, 5, 13])
def test_a_gate_that_crashes_is_open_so_that_the_crash_is_the_members_own(first: int, then: int) -> None:
    made = stages()
    made.enter(NUMBERS, (0,))
    for number in (first, then):
        VALUES.set(made.graph, number, 0)
        made.settle()
        assert GATED.of(made.graph, 0) == PLAIN.of(made.graph, 0) == ((5,) if number == 5 else ())
        assert bool(made.graph.crashes) == (number == 13)
