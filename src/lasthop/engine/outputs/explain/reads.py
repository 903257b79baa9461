"""The recorded reads themselves: what an answer rests on, and what rests on an object."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from lasthop.base.api.meta import Key
from lasthop.base.api.times import rfc3339
from lasthop.engine.outputs.explain.fact import Fact, FactState
from lasthop.engine.outputs.status.statuses import STATUS_OF
from lasthop.engine.store.graph import BEFORE, Graph, Query
from lasthop.engine.store.node import NodeId
from lasthop.engine.store.store import OBJECTS


def below(g: Graph, root: NodeId) -> Iterator[NodeId]:
    """Yields everything that an answer rests on, directly or not, each once, in the order in which it was read."""
    seen = {root}
    todo = [root]
    while todo:
        node = todo.pop()
        if node is not root:
            yield node
        fresh = [read for read in g.reads_at(node) if read not in seen]
        seen.update(fresh)
        todo.extend(reversed(fresh))


def above(g: Graph, root: NodeId, *ends: Callable[..., Any]) -> Iterator[NodeId]:
    """Returns everything that depends on a node, directly or not, each once, the nearest first, but not what depends on these
    queries: beyond them may be most of the graph."""
    seen = {root}
    todo = [root]
    for node in todo:
        fresh = [reader for reader in g.readers_at(node) if reader not in seen]
        seen.update(fresh)
        todo.extend(each for each in fresh if each[0] not in ends)
        yield from fresh


def reads_tree(g: Graph, key: Key) -> Generator[None, None, Fact]:
    """Returns the reads behind an object's status; for an object that has none, the queries that read it. That may be most of
    the graph, so it is built step by step."""
    if status := STATUS_OF.get(key.kind):
        status.attempt(g, key)
        return (yield from _tree(g, (status, key), set(), up=False))
    return (yield from _tree(g, (OBJECTS, key), set(), up=True))


def _tree(g: Graph, node: NodeId, seen: set[NodeId], *, up: bool) -> Generator[None, None, Fact]:
    nodes = sorted(g.readers_at(node), key=name) if up else g.reads_at(node)
    if node in seen and nodes:
        return Fact(f"{name(node)} (see above)")
    seen.add(node)
    # An input is named by its key alone: whatever it holds, a private key perhaps, is not shown.
    missing = node[0] is OBJECTS and OBJECTS.peek(g, node[1]) is None
    because = []
    for each in nodes:
        because.append((yield from _tree(g, each, seen, up=up)))
    yield
    text = name(node) + (" (does not exist)" if missing else "")
    return Fact(text, FactState.BAD if missing else FactState.PLAIN, tuple(because))


def name(node: NodeId) -> str:
    tag, *key = node
    if tag is OBJECTS:
        return f"object {key[0]}"
    if tag is BEFORE:
        return f"before {rfc3339(key[0])}"
    if isinstance(tag, Query):
        return f"{tag}({', '.join(_shown(each) for each in key)})"
    return f"{tag} {_shown(tuple(key))}"


def _shown(value: Any) -> str:
    if isinstance(value, Key):
        return str(value)
    if isinstance(value, tuple):
        return " ".join(_shown(each) for each in value if each != "")
    return str(value)
