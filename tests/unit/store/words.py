"""Queries over words, which write down when they are computed."""

from __future__ import annotations

from typing import Any

from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Input
from lasthop.engine.store.stages import Output, Stages

WORDS = Input[object, Any]("word")
calls: list[tuple[str, Any]] = []


@query
def length(g: Graph, key: str) -> int:
    calls.append(("length", key))
    return len(WORDS.of(g, key) or "")


@query
def parity(g: Graph, key: str) -> str:
    calls.append(("parity", key))
    return "even" if length(g, key) % 2 == 0 else "odd"


@query
def both(g: Graph, key: str) -> str:
    calls.append(("both", key))
    return f"{parity(g, key)} {WORDS.of(g, 'suffix') or '-'}"


THINGS = Output("out", "things", both)


def graph() -> Stages:
    calls.clear()
    return Stages(Graph(), [THINGS])
