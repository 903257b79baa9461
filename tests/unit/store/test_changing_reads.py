"""Queries whose reads depend on earlier reads: for any pins and changes, values are up to date."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Input
from lasthop.engine.store.turns import Turns

CELLS = 5
FORMULAS = Input[int, tuple[int, ...]]("formula")
"""What a cell adds to its own number: the cells with these numbers, if they are higher."""


@query
def cell(g: Graph, number: int) -> int:
    return number + sum(cell(g, other) for other in FORMULAS.of(g, number) or () if other > number)


def fresh(formulas: dict[int, tuple[int, ...]], number: int) -> int:
    return number + sum(fresh(formulas, other) for other in formulas.get(number, ()) if other > number)


numbers = st.integers(0, CELLS - 1)
steps = st.tuples(numbers, st.lists(numbers, max_size=3).map(tuple) | st.booleans())
"""A cell's new formula, or whether it is pinned from now on."""


@given(st.lists(steps, max_size=40))
@example([(1, (3,)), (1, True), (1, ()), (0, (3, 1)), (0, True), (3, (4,))])
def test_a_query_runs_again_after_every_change_of_its_current_reads(history: list[tuple[int, tuple[int, ...] | bool]]) -> None:
    g, turns = Graph(), Turns()
    formulas: dict[int, tuple[int, ...]] = {}
    pinned: set[int] = set()
    for number, step in [*history, (0, True)]:
        if isinstance(step, tuple):
            formulas[number] = step
            FORMULAS.set(g, step, number)
            continue  # several changes before anyone looks
        if step:
            pinned.add(number)
        else:
            pinned.discard(number)
            g.unpin((cell, number), turns)
        values = {key: g.pin((cell, key), turns).value for key in sorted(pinned)}
        assert values == {key: fresh(formulas, key) for key in pinned}
    for key in pinned:
        g.unpin((cell, key), turns)
    assert not g.nodes
