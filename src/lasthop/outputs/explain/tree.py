"""An explanation as JSON, for the CLI and the admin API, built step by step: it may have as many lines as the graph nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator

import msgspec

from lasthop.api.documents import Json
from lasthop.api.meta import Key
from lasthop.outputs.explain.explain import explain
from lasthop.outputs.explain.fact import Fact, bad
from lasthop.outputs.explain.reads import reads_tree
from lasthop.plan.messages import CRASHED
from lasthop.store.graph import Graph
from lasthop.store.node import Crash
from lasthop.store.store import OBJECTS

Locate = Callable[[Key], tuple[str, int] | None]
Steps = Generator[None, None, Json]


def tree(g: Graph, key: Key, locate: Locate, *, reads: bool = False) -> Generator[None, None, Json | None]:
    """Returns None if there is no such object. `reads`: the recorded reads instead of the explanation in words."""
    if OBJECTS.peek(g, key) is None:
        return None
    fact = (yield from reads_tree(g, key)) if reads else explain.attempt(g, key)
    yield
    if isinstance(fact, Crash):
        fact = bad(f"{key}: {CRASHED}", object=key)
    return (yield from _document(fact, functools.cache(locate))) if fact else None


def _document(fact: Fact, locate: Locate) -> Steps:
    """Returns a fact as JSON, with the place of the object it is about."""
    because = []
    for each in fact.because:
        because.append((yield from _document(each, locate)))
    yield
    place = locate(fact.object) if fact.object else None
    found = {
        **msgspec.structs.asdict(fact),
        "state": str(fact.state),
        "because": because,
        "object": fact.object._asdict() if fact.object else None,
        "place": f"{place[0]}:{place[1]}" if place else "",
    }
    return {name: value for name, value in found.items() if value}
