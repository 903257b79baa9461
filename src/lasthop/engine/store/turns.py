"""Turns: in which order the members of a stage are looked at where there is no time for all of them at once.

Those whose changes they follow take turns, so what concerns thousands, or is made again and again, does not hold up what
others do. Of the changes of one owner the latest goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from typing import Any

Member = tuple[Any, ...]


class Turns:
    """The members of one stage that are to be looked at."""

    __slots__ = ("_known", "_new", "_queues", "dirty")

    def __init__(self, known: Container[Member] = ()) -> None:
        """`known`: members that were looked at before."""
        self._known = known
        self.dirty: dict[Member, None] = {}
        self._queues: dict[str, dict[Member, None]] = {}
        """The same by the owner of what changed, the one whose turn it is first. May name members that are clean again."""
        self._new: dict[str, dict[Member, None]] = {}
        """Those of them that were not known when they were marked."""

    def mark(self, member: Member, owner: str) -> None:
        self.dirty[member] = None
        queue = self._queues.setdefault(owner, {})
        queue.pop(member, None)
        queue[member] = None
        if member not in self._known:
            self._new.setdefault(owner, {})[member] = None

    def take_all(self) -> Collection[Member]:
        dirty, self.dirty, self._queues, self._new = self.dirty, {}, {}, {}
        return dirty

    def take(
        self, limit: int, enough: Callable[[], bool], held: Container[object], waiting: Collection[str]
    ) -> Iterator[Member]:
        """Yields at most so many, and one once there is enough. `held`: members that wait, by the first of their key;
        `waiting`: those whose changes wait."""
        queues = self._queues
        aside = {owner: queues.pop(owner) for owner in waiting if owner in queues}
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
        queues.update(aside)
        for owner, member in reversed(passed):
            self.mark(member, owner)

    def drop(self, member: Member) -> bool:
        """Takes one member, whoever's turn it is; returns whether it was to be looked at."""
        if member not in self.dirty:
            return False
        del self.dirty[member]
        if not self.dirty:  # stages that have nothing to look at are not asked for their turns
            self._queues.clear()
            self._new.clear()
        return True

    def owners_of_new(self) -> frozenset[str]:
        """Returns those by whose changes there are members that are not known yet."""
        for owner, members in list(self._new.items()):
            while members and ((member := next(iter(members))) not in self.dirty or member in self._known):
                del members[member]
            if not members:
                del self._new[owner]
        return frozenset(self._new)
