"""What comes in besides objects: settings, time's tools, what proxies and ports are like."""

from __future__ import annotations

from typing import Generic, TypeVar, TypeVarTuple

from lasthop.store.graph import Graph, NodeId, input_node

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Input(Generic[*Ts, T]):
    """One value for each key, read by queries and set from outside the graph."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def of(self, g: Graph, /, *key: *Ts) -> T | None:
        """Returns the value as something that the running query has read; None where it is not set."""
        value: T | None = g.input((self.name, *key))
        return value

    def peek(self, g: Graph, /, *key: *Ts) -> T | None:
        value: T | None = g.peek((self.name, *key))
        return value

    def set(self, g: Graph, value: T | None, /, *key: *Ts) -> bool:
        """Returns whether that changed anything."""
        return g.set((self.name, *key), value)

    def node(self, *key: *Ts) -> NodeId:
        """Where recorded reads show it."""
        return input_node((self.name, *key))
