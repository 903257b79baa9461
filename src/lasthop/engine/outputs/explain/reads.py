"""The recorded reads: what an answer rests on, and what rests on an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import NodeId


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
