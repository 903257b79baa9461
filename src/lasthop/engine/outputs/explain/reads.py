"""Walks the recorded reads: the dependencies of a result, and the dependents of an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import NodeId


def below(g: Graph, root: NodeId) -> Iterator[NodeId]:
    """Yields all direct and indirect dependencies of a node once, in the order of the reads."""
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
    """Yields all direct and indirect dependents of a node once, the nearest first. The walk stops at the queries `ends`,
    beyond which most of the graph may follow."""
    seen = {root}
    todo = [root]
    for node in todo:
        fresh = [reader for reader in g.readers_at(node) if reader not in seen]
        seen.update(fresh)
        todo.extend(reader for reader in fresh if reader[0] not in ends)
        yield from fresh
