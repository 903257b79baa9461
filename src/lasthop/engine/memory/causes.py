"""Finds the objects whose edit changed how a hop is verified: those that were edited since the last comparison, and that the
hop's verdict was made of.

    apply() ──> edited objects ─────────────────────────────┐
    verification ──recorded reads that have changed──> ...──┴──> causes
                   └──> an index ──journal: by which members──> their reads
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.store.graph import BEFORE
from lasthop.engine.store.node import NodeId
from lasthop.engine.store.sources import IndexSummary
from lasthop.engine.store.stages import Stages
from lasthop.engine.store.store import OBJECTS

MOST: Final = 1000
"""Reads that are followed for one hop."""


class EditKind(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    EXPIRED = "expired"
    """Its end has come; the object is as it was."""


class EditCause(msgspec.Struct, frozen=True, order=True):
    key: Key
    edit: EditKind

    def __str__(self) -> str:
        return f"{self.key} {'has' if self.edit is EditKind.EXPIRED else 'was'} {self.edit}"


class Causes:
    """Is told of every edit, and forgets them once every hop has been compared. Until everything has been read nothing is a
    cause: what was edited before that is not known."""

    def __init__(self, stages: Stages) -> None:
        self._stages, self._graph = stages, stages.graph
        self._edits: dict[Key, EditKind] = {}
        self._started = False
        self._base = 0
        """The graph's revision when every hop had been compared."""

    def edited(self, key: Key, *, existed: bool, exists: bool) -> None:
        if not self._started:
            return
        edit = EditKind.CHANGED if existed and exists else EditKind.CREATED if exists else EditKind.DELETED
        if not self._edits:
            self._graph.step()
        if edit is EditKind.CHANGED and self._edits.get(key) is EditKind.CREATED:
            return
        self._edits[key] = edit

    def started(self) -> None:
        """Takes that everything has been read: what comes from now on is an edit."""
        self._started = True

    def compared(self) -> None:
        """Forgets what was edited: every hop has been compared with what it was before."""
        self._edits.clear()
        self._stages.journal = {}
        self._base = self._graph.version[1]

    def of(self, *roots: NodeId, waiver: Key | None = None, end: float | None = None) -> tuple[EditCause, ...]:
        """Returns what was edited of all that these rest on. `waiver` is the one that was in effect, until `end`."""
        if not self._started:
            return ()
        found: set[EditCause] = set()
        for source, *key in self._changed(roots):
            if source is OBJECTS and key[0] in self._edits:
                found.add(EditCause(key[0], self._edits[key[0]]))
            elif source is BEFORE and waiver is not None and key[0] == end and waiver not in self._edits:
                found.add(EditCause(waiver, EditKind.EXPIRED))
        return tuple(sorted(found))

    def _changed(self, roots: Iterable[NodeId]) -> Iterator[NodeId]:
        """Yields the sources that have changed, of all that these rest on."""
        todo, seen = list(roots), set(roots)
        while todo and len(seen) < MOST:
            id = todo.pop()
            further = self._behind(id)
            if not further:
                yield id
            fresh = [each for each in further if each not in seen]
            seen.update(fresh)
            todo += fresh

    def _behind(self, id: NodeId) -> list[NodeId]:
        """Returns what has changed of all that a value was made of, or that is listed under a key of an index."""
        at = (id[0].index, *id[1:]) if isinstance(id[0], IndexSummary) else id
        listed = (self._stages.journal or {}).get(at, ())
        if node := self._graph.nodes.get(id):
            return [*(dep.id for dep in node.deps if dep.changed > self._base), *listed]
        if id[0] is not OBJECTS and len(id) == 2 and isinstance(id[1], Key):
            return [(OBJECTS, id[1]), *listed]  # a member that has left: of its reads nothing is known any more
        return list(listed)


def clause(causes: Iterable[EditCause]) -> str:
    """Returns the causes as `GatewayProfile default/prod was changed`."""
    return " and ".join(map(str, causes))
