"""Nodes of the graph: a value with its dependencies and its readers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.store.turns import Turns

NodeId = tuple[Any, ...]
"""(query or source, *key)."""


class Crash(msgspec.Struct, frozen=True):
    """The result of a query that raised an exception. Calls of the query raise the same exception; `attempt` returns the
    crash, and its caller uses a stand-in that fails closed. An indexer lists nothing for the member, or keeps its entries, and
    the value of an output is None."""

    error: Exception
    where: str = ""
    """`file:line` that raised the exception."""

    @classmethod
    def of(cls, error: Exception) -> Crash:
        """Keeps an error without its frames, which would otherwise stay in memory and grow with each reader."""
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
        return cls(error.with_traceback(None), where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Crash) and repr(self.error) == repr(other.error)

    def __hash__(self) -> int:
        return hash(repr(self.error))


CLEAN: Final = 0
MAYBE: Final = 1
"""A direct or indirect dependency may have changed."""
DIRTY: Final = 2

FEW: Final = 8
"""Up to this number, readers are stored in a tuple: most nodes have at most one, and a set for each would be half of all
memory."""


class Node:
    __slots__ = ("changed", "deps", "id", "marked", "pinned", "readers", "state", "value", "verified")

    def __init__(self, id: NodeId, value: Any, deps: tuple[Node, ...], revision: int) -> None:
        self.id = id
        self.value = value
        self.deps = deps
        self.readers: tuple[Node, ...] | set[Node] = ()
        self.state: int = CLEAN
        self.changed = revision
        self.verified = revision
        self.marked: str | None = None
        """The owner of the last change that reached the node, while it is not clean."""
        self.pinned: tuple[Turns, ...] = ()
        """Turns of the stages that pin this node; the member is the rest of its id."""

    def add_reader(self, reader: Node) -> None:
        readers = self.readers
        if isinstance(readers, set):
            readers.add(reader)
        elif reader not in readers:
            self.readers = (*readers, reader) if len(readers) < FEW else {*readers, reader}

    def remove_reader(self, reader: Node) -> None:
        readers = self.readers
        if isinstance(readers, set):
            readers.discard(reader)
        else:
            self.readers = tuple(node for node in readers if node is not reader)

    def __repr__(self) -> str:
        return f"<{self.id} {('clean', 'maybe', 'dirty')[self.state]}>"


def owner_of(key: tuple[object, ...]) -> str:
    """Returns the namespace of the last object in a key; empty if it has none."""
    for part in reversed(key):
        if isinstance(part, Key):
            return part.namespace
    return ""
