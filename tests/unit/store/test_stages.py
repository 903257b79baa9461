"""The stages: settling within a limit, dependencies between stages, and owners that take turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import Output, Stages, indexer
from tests.unit.store.words import THINGS, WORDS, both, calls, graph, length


def test_a_limited_settle_looks_at_the_latest_change_first_and_comes_to_the_same_end() -> None:
    g = graph()
    for number in range(10):
        g.enter("things", (f"t{number}",))
    seen: list[str] = []
    while g.unsettled:
        seen += [key for (key,) in g.settle(limit=3)["out"]]
        if len(seen) == 3:
            WORDS.set(g.graph, "!", "suffix")
            g.enter("things", ("urgent",))
    assert seen[:3] == ["t9", "t8", "t7"]
    assert seen[3] == "urgent"
    assert {key for (key,) in g.members(THINGS)} == {*(f"t{number}" for number in range(10)), "urgent"}
    assert set(g.members(THINGS).values()) == {"even !"}


def test_members_wait_for_unreported_members_that_they_refer_to() -> None:
    stages = [Output("clusters", "thing", length, is_referenced=True), Output("routes", "thing", both, has_references=True)]
    g = Stages(Graph(), stages)
    for number in range(3):
        g.enter("thing", (f"t{number}",))
    assert set(g.settle(limit=2)) == {"clusters"}
    assert set(g.settle(limit=2)) == {"clusters", "routes"}
    while g.unsettled:
        g.settle(limit=2)
    for number in range(3):
        WORDS.set(g.graph, "x", f"t{number}")
    assert set(g.settle(limit=2)) == {"clusters", "routes"}


def thing(namespace: str, number: int) -> Key:
    return Key("Thing", namespace, str(number))


@query
def shown(g: Graph, key: Key) -> tuple[Any, Any]:
    return WORDS.of(g, key), WORDS.of(g, Key("Shared", "infra", "ca"))


@query
def own(g: Graph, key: Key) -> Any:
    return WORDS.of(g, key)


SHOWN = Output("out", "things", shown)


def tenants(*namespaces: str, count: int = 20) -> Stages:
    g = Stages(Graph(), [Output("urgent", "things", own), SHOWN])
    for namespace in namespaces:
        for number in range(count):
            WORDS.set(g.graph, 0, thing(namespace, number))
            g.enter("things", (thing(namespace, number),))
    g.settle()
    return g


def settled(g: Stages, **how: Any) -> list[Key]:
    return [key for (key,) in g.settle(limit=4, **how).get("out", {})]


def test_owners_take_turns_however_much_one_of_them_has_changed() -> None:
    g = tenants("noisy", "other")
    WORDS.set(g.graph, 1, thing("other", 7))
    for number in range(20):
        WORDS.set(g.graph, 1, thing("noisy", number))
    assert settled(g) == [thing("other", 7), thing("noisy", 19), thing("noisy", 18), thing("noisy", 17)]
    for _ in range(50):  # however often
        WORDS.set(g.graph, object(), thing("noisy", 0))
        WORDS.set(g.graph, object(), thing("other", 3))
        assert thing("other", 3) in settled(g)


def test_new_members_of_one_owner_do_not_hold_back_others() -> None:
    routes = Output("routes", "things", shown, has_references=True)
    g = Stages(Graph(), [Output("clusters", "things", shown, is_referenced=True), routes])
    mine = thing("shop", 0)
    WORDS.set(g.graph, 0, mine)
    g.enter("things", (mine,))
    g.settle()
    for number in range(50):
        WORDS.set(g.graph, 0, thing("evil", number))
        g.enter("things", (thing("evil", number),))
    WORDS.set(g.graph, 1, mine)
    first = g.settle(limit=3)
    assert list(first["routes"]) == [(mine,)], "its own is told, and none of those whose clusters are not"
    assert len(first["clusters"]) == 3
    while g.unsettled:
        g.settle(limit=3)
    assert len(g.members(routes)) == 51


def test_an_owners_edit_promotes_a_member_from_another_owners_backlog() -> None:
    g = tenants("a", "b")
    WORDS.set(g.graph, "rotated", Key("Shared", "infra", "ca"))  # concerns all
    assert len(settled(g)) == 4
    WORDS.set(g.graph, "tightened", thing("a", 2))
    assert thing("a", 2) in settled(g)
    while g.unsettled:
        settled(g)
    assert g.members(SHOWN)[(thing("b", 1),)] == (0, "rotated")


def test_once_there_is_enough_each_output_still_gets_on_by_one_member() -> None:
    g = tenants("a")
    for number in range(20):
        WORDS.set(g.graph, 1, thing("a", number))
    changes = g.settle(limit=4, enough=lambda: True)
    assert {name: len(changed) for name, changed in changes.items()} == {"urgent": 1, "out": 1}


def test_two_outputs_of_which_one_leads_to_the_other_report_a_member_together_or_not_at_all() -> None:
    clusters = Output("clusters", "things", shown)
    g = Stages(Graph(), [clusters, Output("endpoints", "things", shown, reported_with="clusters")])
    for number in range(20):
        WORDS.set(g.graph, 0, thing("a", number))
        g.enter("things", (thing("a", number),))
    left = iter((False, False, True))
    first = g.settle(limit=8, enough=lambda: next(left, True))
    assert 1 < len(first["clusters"]) < 20
    assert first["clusters"].keys() == first["endpoints"].keys()
    while g.unsettled:
        changes = g.settle(limit=8, enough=lambda: True)
        assert changes["clusters"].keys() == changes["endpoints"].keys()
    assert len(g.members(clusters)) == 20


def test_two_that_go_together_are_one_limit_and_what_changes_alone_gets_on_all_the_same() -> None:
    g = Stages(Graph(), [Output("clusters", "things", length), Output("endpoints", "things", both, reported_with="clusters")])
    for number in range(40):
        WORDS.set(g.graph, "x", f"{number}")
        g.enter("things", (f"{number}",))
    g.settle()
    for number in range(40):
        WORDS.set(g.graph, "xxx", f"{number}")
    changes = g.settle(limit=8)
    assert (len(changes["clusters"]), g.settle(limit=0)) == (10, {})


def test_an_index_of_thousands_does_not_hold_up_what_another_one_has_edited() -> None:
    seen = Index[str, Key]("seen")

    @indexer("things", deferrable=True)
    def index_seen(g: Graph, key: Key) -> Iterator[Entry]:
        calls.append(("listed", key))
        yield seen.entry((str(shown(g, key)),), key)

    g = Stages(Graph(), [index_seen, Output("out", "things", shown)])
    for number in range(50):
        WORDS.set(g.graph, 0, thing("many", number))
        g.enter("things", (thing("many", number),))
    WORDS.set(g.graph, 0, thing("one", 1))
    g.enter("things", (thing("one", 1),))
    calls.clear()
    first = g.settle(limit=4)
    listed = [key for what, key in calls if what == "listed"]
    assert len(listed) <= 8 and (thing("one", 1),) in first["out"]
    assert {member[0] for member in first["out"]} <= set(listed), "nothing is told before it is listed"
    while g.unsettled:
        g.settle(limit=4)
    assert sum(len(values) for values in g.graph.listed.values()) == 51


def test_only_some_outputs_and_the_others_later() -> None:
    g = tenants("a")
    WORDS.set(g.graph, 1, thing("a", 1))
    assert g.settle(limit=4, only=("urgent",)) == {"urgent": {(thing("a", 1),): 1}}
    assert g.unsettled and settled(g) == [thing("a", 1)]


def test_held_members_wait_and_delay_no_others() -> None:
    g = tenants("a", "b")
    WORDS.set(g.graph, 1, thing("a", 1))
    WORDS.set(g.graph, 1, thing("b", 1))
    hold = {"out": {thing("a", 1)}}
    assert settled(g, hold=hold) == [thing("b", 1)]
    assert g.unsettled and not g.unsettled_but(hold)
    WORDS.set(g.graph, 1, thing("b", 2))
    assert g.unsettled_but(hold) and settled(g, hold=hold) == [thing("b", 2)]
    assert settled(g) == [thing("a", 1)] and not g.unsettled


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60), st.integers(1, 5), st.booleans())
def test_turns_come_to_the_same_end_as_one_settle(edits: list[tuple[str, int]], limit: int, enough: bool) -> None:
    g, at_once = tenants("a", "b", "c", count=6), tenants("a", "b", "c", count=6)
    for count, (namespace, number) in enumerate(edits):
        for stages in (g, at_once):
            WORDS.set(stages.graph, count, thing(namespace, number))
        if count % 3 == 0:
            g.settle(limit=limit, enough=lambda: enough, hold={"out": {thing("a", 1)}})
    at_once.settle()
    while g.unsettled:
        g.settle(limit=limit, enough=lambda: enough)
    assert g.members(SHOWN) == at_once.members(SHOWN)
