"""The store of objects by key. It reports whether a change affects any field that Lasthop uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lasthop.base.api.meta import Key, Object
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Input
from lasthop.engine.store.stages import Stages

T = TypeVar("T", bound=Object)

OBJECTS = Input[Key, Object]("object")


def read(g: Graph, key: Key, struct: type[T]) -> T | None:
    """Returns an object, or None if it does not exist. Raises TypeError for another type."""
    obj: Object | None = g.read((OBJECTS, key))
    if obj is None or isinstance(obj, struct):
        return obj
    raise TypeError(f"{key} is a {type(obj).__name__} and not a {struct.__name__}")


class Store:
    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._keys: dict[str, set[Key]] = {}

    def apply(self, changes: Mapping[Key, Object | None]) -> bool:
        return any([self.put(key, obj) for key, obj in changes.items()])

    def put(self, key: Key, obj: Object | None) -> bool:
        existed = self.get(key) is not None
        if not OBJECTS.set(self._stages.graph, obj, key):
            return False
        if obj is None:
            self._keys[key.kind].discard(key)
            self._stages.leave(key.kind, (key,))
        elif not existed:
            self._keys.setdefault(key.kind, set()).add(key)
            self._stages.enter(key.kind, (key,))
        return True

    def get(self, key: Key) -> Object | None:
        return OBJECTS.peek(self._stages.graph, key)

    def uid(self, key: Key) -> str:
        """Returns an object's UID; empty if it does not exist."""
        obj = self.get(key)
        return obj.metadata.uid if obj is not None else ""

    def keys(self, kind: str) -> list[Key]:
        return sorted(self._keys.get(kind, ()))

    def count(self, kind: str) -> int:
        return len(self._keys.get(kind, ()))
