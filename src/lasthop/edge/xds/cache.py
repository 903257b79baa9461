"""Holds the resources that one Gateway's proxies should have, in the order of their last change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.engine.outputs.envoy.resource import Change, Changes, Resource, Withdrawal, type_name

KEPT_WITHDRAWALS: Final = 10_000
"""Maximum withdrawals kept for disconnected proxies. Endpoints get a new name with every edit of their cluster, so the list
would grow without limit. A cluster that drops out of the list counts as withdrawn urgently, which is safe."""


class _CacheEntry(msgspec.Struct, frozen=True):
    change: Change
    generation: int


def wire_version(resource: Resource) -> str:
    """Returns the version that the client sees. It includes the expiry, because a changed expiry of a waiver changes no byte
    of the cluster but must reach Envoy's timer."""
    return resource.version if resource.expires is None else f"{resource.version}+{resource.expires:.3f}"


class Cache:
    def __init__(self) -> None:
        self.generation = 0
        self._entries: dict[str, dict[str, _CacheEntry]] = {}
        """Entries by type and name, in the order of their last change, newest last."""
        self._withdrawn: dict[tuple[str, str], None] = {}
        self._expiring: dict[tuple[str, str], float] = {}
        self.next_expiry: float | None = None
        """The earliest possible expiry of a resource."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{type_name(url)}: {len(entries)}" for url, entries in self._entries.items())
        return f"Cache(generation {self.generation}, {counts})"

    def apply(self, changes: Changes) -> bool:
        """Applies the changes as one generation, and returns whether any resource has changed."""
        generation = self.generation + 1
        for type_url, named in changes.items():
            for name, change in named.items():
                if not _same(self.get(type_url, name), change):
                    self._put(type_url, name, _CacheEntry(change, generation))
                    self.generation = generation
        while len(self._withdrawn) > KEPT_WITHDRAWALS:
            type_url, name = next(iter(self._withdrawn))
            del self._withdrawn[type_url, name], self._entries[type_url][name]
        return self.generation == generation

    def get(self, type_url: str, name: str) -> Change | None:
        entry = self._entries.get(type_url, {}).get(name)
        return entry.change if entry else None

    def names(self, type_url: str) -> list[str]:
        """Returns the names of all current and withdrawn resources, oldest change first."""
        return list(self._entries.get(type_url, ()))

    def count(self, type_url: str) -> int:
        return len(self._entries.get(type_url, ()))

    @property
    def most(self) -> int:
        """Returns the number of names of the largest type."""
        return max(map(len, self._entries.values()), default=0)

    def holds_any(self, type_url: str) -> bool:
        return any(isinstance(entry.change, Resource) for entry in self._entries.get(type_url, {}).values())

    def changed_since(self, type_url: str, generation: int) -> list[str]:
        """Returns names, oldest change first. The cost grows with the number of changes, not of resources."""

        def newest_first() -> Iterator[str]:
            for name, entry in reversed(self._entries.get(type_url, {}).items()):
                if entry.generation <= generation:
                    return
                yield name

        return list(newest_first())[::-1]

    def expire(self, now: float) -> None:
        """Withdraws expired resources urgently. Envoy has its own timer. This covers resources that were not sent yet, and
        rejected responses, whose valid resources Envoy has applied without their timer."""
        if self.next_expiry is None or self.next_expiry > now:
            return
        expired = [key for key, expires in self._expiring.items() if expires <= now]
        if expired:
            self.generation += 1
        for type_url, name in expired:
            self._put(type_url, name, _CacheEntry(Withdrawal(urgent=True), self.generation))
        self.next_expiry = min(self._expiring.values(), default=None)

    def _put(self, type_url: str, name: str, entry: _CacheEntry) -> None:
        entries = self._entries.setdefault(type_url, {})
        entries.pop(name, None)
        entries[name] = entry
        self._withdrawn.pop((type_url, name), None)
        self._expiring.pop((type_url, name), None)
        if isinstance(entry.change, Withdrawal):
            self._withdrawn[type_url, name] = None
        elif entry.change.expires is not None:
            expires = self._expiring[type_url, name] = entry.change.expires
            self.next_expiry = expires if self.next_expiry is None else min(expires, self.next_expiry)


def _same(old: Change | None, new: Change) -> bool:
    match old, new:
        case Resource(), Resource():
            return wire_version(old) == wire_version(new)
        case Withdrawal(), Withdrawal():
            return old.urgent or not new.urgent  # an urgent withdrawal is never softened
    return False
