"""What is known of our objects' statuses from watching, so that a writer need not ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lasthop.api.meta import Key
from lasthop.kubernetes.versions import older


class Held(NamedTuple):
    version: str
    """resourceVersion of the object."""
    status: bytes
    """The status as JSON; empty where there is none."""
    generation: int = 0


class Observed:
    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        """In which API version each kind is served."""
        self.on_change: Callable[[Key], None] = lambda key: None
        """Told of every object that was written by anyone."""
        self._held: dict[Key, Held] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def get(self, key: Key) -> Held | None:
        return self._held.get(key)

    def observe(self, key: Key, held: Held) -> None:
        """As the watch shows it, which may be a little late: then what is held stays."""
        if self.put(key, held):
            self.on_change(key)

    def put(self, key: Key, held: Held) -> bool:
        before = self._held.get(key)
        if before is not None and (before.version == held.version or older(held.version, before.version)):
            return False
        self._held[key] = held
        return True

    def forget(self, key: Key) -> None:
        self._held.pop(key, None)
