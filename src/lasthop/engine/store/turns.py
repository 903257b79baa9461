"""Turns: the order in which a stage processes its members when time is limited.

Owners of changes take turns, so that a change with thousands of effects, or a repeated change, does not delay those of other
owners. Within one owner, the latest change goes first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from typing import Any

Member = tuple[Any, ...]


class Turns:
    """The dirty members of one stage."""

    __slots__ = ("_new", "_processed", "_queues", "dirty")

    def __init__(self, processed: Container[Member] = ()) -> None:
        """`processed` contains the members that were processed before."""
        self._processed = processed
        self.dirty: dict[Member, None] = {}
        self._queues: dict[str, dict[Member, None]] = {}
        """Dirty members by owner of the change; the next owner comes first. May contain members that are clean again."""
        self._new: dict[str, dict[Member, None]] = {}
        """Dirty members that were not yet processed when they were marked."""

    def mark(self, member: Member, owner: str) -> None:
        self.dirty[member] = None
        queue = self._queues.setdefault(owner, {})
        queue.pop(member, None)
        queue[member] = None
        if member not in self._processed:
            self._new.setdefault(owner, {})[member] = None

    def take_all(self) -> Collection[Member]:
        dirty, self.dirty, self._queues, self._new = self.dirty, {}, {}, {}
        return dirty

    def take(
        self, limit: int, enough: Callable[[], bool], held: Container[object], delayed_owners: Collection[str]
    ) -> Iterator[Member]:
        """Yields at most `limit` members, and stops after one once `enough()` is true. `held` delays members by the first part
        of their key."""
        queues = self._queues
        delayed = {owner: queues.pop(owner) for owner in delayed_owners if owner in queues}
        taken, passed = 0, []
        while queues and taken < limit and not (taken and enough()):
            owner = next(iter(queues))
            queue = queues.pop(owner)
            member = queue.popitem()[0]
            if queue:
                queues[owner] = queue
            if member in self.dirty and member[0] in held:
                passed.append((owner, member))
            elif member in self.dirty:
                del self.dirty[member]
                taken += 1
                yield member
        queues.update(delayed)
        for owner, member in reversed(passed):
            self.mark(member, owner)

    def drop(self, member: Member) -> bool:
        """Removes one member out of turn; returns whether it was dirty."""
        if member not in self.dirty:
            return False
        del self.dirty[member]
        if not self.dirty:  # a stage without dirty members never takes turns
            self._queues.clear()
            self._new.clear()
        return True

    def owners_of_new(self) -> frozenset[str]:
        """Returns the owners whose changes created members that are not yet processed."""
        for owner, members in list(self._new.items()):
            while members and ((member := next(iter(members))) not in self.dirty or member in self._processed):
                del members[member]
            if not members:
                del self._new[owner]
        return frozenset(self._new)
