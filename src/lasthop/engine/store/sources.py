"""Sources of queries: inputs hold objects and other external values, indexes hold what stages list by key.

Each source is declared once, with the types of its keys and values.
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
"""((index, *key), the value to list there)."""


class Input(Generic[*Ts, T]):
    """Maps keys to external values; None for missing ones."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def of(self, g: Graph, /, *key: *Ts) -> T | None:
        value: T | None = g.read((self, *key))
        return value

    def peek(self, g: Graph, /, *key: *Ts) -> T | None:
        """Returns the value without recording a read, for callers outside queries."""
        return cast("T | None", g.inputs.get((self, *key)))

    def set(self, g: Graph, value: T | None, /, *key: *Ts) -> bool:
        """Sets the value, or removes it with None; returns whether it changed."""
        return g.set((self, *key), value)

    def current(self, g: Graph, id: NodeId, /) -> object:
        return g.inputs.get(id)

    def __repr__(self) -> str:
        return f"input {self.name}"


class Index(Generic[*Ts, T]):
    """Lists values by key, for example the EndpointSlices of a Service. Its keys can be the domain of a later stage."""

    __slots__ = ("name", "sizes", "summaries")

    def __init__(self, name: str) -> None:
        self.name = name
        self.summaries: list[IndexSummary[*Ts, Any]] = []
        self.sizes = IndexSummary[*Ts, int](self, "size", len)

    def of(self, g: Graph, /, *key: *Ts) -> tuple[T, ...]:
        """Returns the values under a key, in the order of their members."""
        values: tuple[T, ...] = g.read((self, *key))
        g.reads += len(values)
        return values

    def size(self, g: Graph, /, *key: *Ts) -> int:
        """Returns the number of values under a key, without reading them."""
        return self.sizes.of(g, *key)

    def summary(self, name: str, fn: Callable[[Collection[T]], V]) -> IndexSummary[*Ts, V]:
        """Declares a value that is computed from all values under a key, independent of their order."""
        summary = IndexSummary[*Ts, V](self, name, fn)
        self.summaries.append(summary)
        return summary

    def entry(self, key: tuple[*Ts], value: T) -> Entry:
        """Returns the entry that an indexer yields to list a value."""
        return (self, *key), value

    def current(self, g: Graph, id: NodeId, /) -> tuple[object, ...]:
        listed = g.listed.get(id, {})
        return tuple(listed.values()) if len(listed) < 2 else tuple(value for _, value in sorted(listed.items()))

    def __repr__(self) -> str:
        return f"index {self.name}"


class IndexSummary(Generic[*Ts, T]):
    """A value computed from all values under a key of an index. Its readers run again only if the summary changes, and no node
    keeps the values themselves."""

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
