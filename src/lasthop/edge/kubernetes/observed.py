"""Caches the current statuses of objects from the watches, so that a writer need not read them first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lasthop.base.api.meta import Key


class ObservedStatus(NamedTuple):
    version: str
    """resourceVersion of the object."""
    status: bytes
    """The status as JSON; empty without one."""
    generation: int = 0


class ObservedStatuses:
    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        """The API version in which each kind is served."""
        self.on_change: Callable[[Key], None] = lambda key: None
        """Called for every object whose status the watch has changed."""
        self._statuses: dict[Key, ObservedStatus] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._statuses)

    def get(self, key: Key) -> ObservedStatus | None:
        return self._statuses.get(key)

    def observe(self, key: Key, status: ObservedStatus) -> None:
        """Records a status from the watch, unless it is older than the known one. Watches may lag behind our own writes."""
        if self.put(key, status):
            self.on_change(key)

    def put(self, key: Key, status: ObservedStatus) -> bool:
        known = self._statuses.get(key)
        if known is not None and (known.version == status.version or older(status.version, known.version)):
            return False
        self._statuses[key] = status
        return True

    def forget(self, key: Key) -> None:
        self._statuses.pop(key, None)


def older(version: str, than: str) -> bool:
    """Compares resourceVersions. Those of one kind are decimal numbers in chronological order (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
