"""Objects by key. Putting an object says whether anything that we use of it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from lasthop.api.meta import Key, Object
from lasthop.store.graph import Graph

T = TypeVar("T", bound=Object)


def read(g: Graph, key: Key, struct: type[T]) -> T | None:
    """An object as a tracked input, None where it does not exist."""
    return cast("T | None", g.input(key))


class Store:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._keys: dict[str, set[Key]] = {}

    def apply(self, changes: Mapping[Key, Object | None]) -> bool:
        return any([self.put(key, obj) for key, obj in changes.items()])

    def put(self, key: Key, obj: Object | None) -> bool:
        known = self.graph.peek(key) is not None
        if not self.graph.set(key, obj):
            return False
        if obj is None:
            self._keys[key.kind].discard(key)
            self.graph.leave(key.kind, (key,))
        elif not known:
            self._keys.setdefault(key.kind, set()).add(key)
            self.graph.enter(key.kind, (key,))
        return True

    def get(self, key: Key) -> Object | None:
        return cast("Object | None", self.graph.peek(key))

    def uid(self, key: Key) -> str:
        """Returns an object's UID; empty where it does not exist."""
        obj = self.get(key)
        return obj.metadata.uid if obj is not None else ""

    def keys(self, kind: str) -> list[Key]:
        return sorted(self._keys.get(kind, ()))

    def count(self, kind: str) -> int:
        return len(self._keys.get(kind, ()))
