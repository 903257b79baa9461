"""Sources: what queries read besides each other. Each is declared once, with the types of its keys and values.

Objects and whatever else comes from outside are inputs; what stages list by key are indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import NodeId
from lasthop.engine.store.turns import Member

T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")

Entry = tuple[NodeId, object]
"""(index, *key), and a value to list there."""


class Input(Generic[*Ts, T]):
    """A value by key that comes from outside; None where there is none."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def of(self, g: Graph, /, *key: *Ts) -> T | None:
        value: T | None = g.read((self, *key))
        return value

    def peek(self, g: Graph, /, *key: *Ts) -> T | None:
        """Returns the value without recording a read: for callers outside of queries."""
        return cast("T | None", g.inputs.get((self, *key)))

    def set(self, g: Graph, value: T | None, /, *key: *Ts) -> bool:
        """Sets the value (None: there is none); returns whether that changed anything."""
        return g.set((self, *key), value)

    def current(self, g: Graph, id: NodeId, /) -> object:
        return g.inputs.get(id)

    def __repr__(self) -> str:
        return f"input {self.name}"


class Index(Generic[*Ts, T]):
    """Lists values by key, as the EndpointSlices of a Service. Its keys can be the domain of a later stage."""

    __slots__ = ("name", "sizes", "summaries")

    def __init__(self, name: str) -> None:
        self.name = name
        self.summaries: list[IndexSummary[*Ts, Any]] = []
        self.sizes = IndexSummary[*Ts, int](self, "size", len)

    def of(self, g: Graph, /, *key: *Ts) -> tuple[T, ...]:
        """Returns what is listed under a key, in the order of the members that have listed it."""
        values: tuple[T, ...] = g.read((self, *key))
        g.reads += len(values)
        return values

    def size(self, g: Graph, /, *key: *Ts) -> int:
        """Returns how many values are listed under a key, without reading them."""
        return self.sizes.of(g, *key)

    def summary(self, name: str, fn: Callable[[Collection[T]], V]) -> IndexSummary[*Ts, V]:
        """Declares a value that is worked out from all that is listed under a key, whatever its order."""
        made = IndexSummary[*Ts, V](self, name, fn)
        self.summaries.append(made)
        return made

    def entry(self, key: tuple[*Ts], value: T) -> Entry:
        """Returns what an indexer yields to list a value."""
        return (self, *key), value

    def current(self, g: Graph, id: NodeId, /) -> tuple[object, ...]:
        listed = g.listed.get(id, {})
        return tuple(listed.values()) if len(listed) < 2 else tuple(value for _, value in sorted(listed.items()))

    def __repr__(self) -> str:
        return f"index {self.name}"


class IndexSummary(Generic[*Ts, T]):
    """A value that is made of all values under a key of an index. Its readers are not looked at again when a value changes
    and the summary does not, and no node keeps the values themselves."""

    __slots__ = ("fn", "index", "name")

    def __init__(self, index: Index[*Ts, Any], name: str, fn: Callable[[Collection[Any]], T]) -> None:
        self.index, self.name, self.fn = index, name, fn

    def of(self, g: Graph, /, *key: *Ts) -> T:
        value: T = g.read((self, *key))
        return value

    def current(self, g: Graph, id: NodeId, /) -> T:
        return self.fn(g.listed.get((self.index, *id[1:]), {}).values())

    def __repr__(self) -> str:
        return f"{self.name} of {self.index}"


AnyIndex = Index[*Member, Any]
