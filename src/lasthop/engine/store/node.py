"""Nodes: one value of the graph each, with what it was made of and who has read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.store.turns import Turns

NodeId = tuple[Any, ...]
"""(query or source, *key)."""


class Crash(msgspec.Struct, frozen=True):
    """A query that raised. Readers that call it raise the same; those that `attempt` it get this instead and put a stand-in in
    its place. A stage without a stand-in lists nothing for the member, or what it listed before, and an output's value is
    None."""

    error: Exception
    where: str = ""
    """`file:line` of what raised it first."""

    @classmethod
    def of(cls, error: Exception) -> Crash:
        """Keeps an error without the frames, which would be kept for as long as the crash is, and grow with each reader."""
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return cls(error.with_traceback(None), where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Crash) and repr(self.error) == repr(other.error)

    def __hash__(self) -> int:
        return hash(repr(self.error))


CLEAN: Final = 0
MAYBE: Final = 1
"""Something that it read, directly or not, may have changed."""
DIRTY: Final = 2

FEW: Final = 8
"""Readers up to which a tuple is used: most nodes have one or none, and a set for each would be half of all memory."""


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
        """Whose change was the last to reach it, while it is not clean."""
        self.pinned: tuple[Turns, ...] = ()
        """Of the stages that look at this node for a member, which is the rest of its id."""

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
            self.readers = tuple(each for each in readers if each is not reader)

    def __repr__(self) -> str:
        return f"<{self.id} {('clean', 'maybe', 'dirty')[self.state]}>"


def owner_of(key: tuple[object, ...]) -> str:
    """Returns the namespace of the last object in a key; empty if it has none."""
    for part in reversed(key):
        if isinstance(part, Key):
            return part.namespace
    return ""
