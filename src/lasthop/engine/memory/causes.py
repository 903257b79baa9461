"""Finds the objects whose edit changed the verification of a hop: edited since the last comparison, and read by the hop's
verdict.

    apply() ──> edited objects ─────────────────────────────┐
    verification ──changed reads───────────────────> ...──┴──> causes
                   └──> an index ──journal: members──> their reads
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
"""Limit of reads that are followed for one hop."""


class EditKind(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    EXPIRED = "expired"
    """The waiver expired; the object itself did not change."""


class EditCause(msgspec.Struct, frozen=True, order=True):
    key: Key
    edit: EditKind

    def __str__(self) -> str:
        return f"{self.key} {'has' if self.edit is EditKind.EXPIRED else 'was'} {self.edit}"


class Causes:
    """Collects edits until every hop has been compared. Objects read at start-up are causes only if the source detects that
    they were edited while Lasthop was not running."""

    def __init__(self, stages: Stages) -> None:
        self._stages, self._graph = stages, stages.graph
        self._edits: dict[Key, EditKind] = {}
        self._started = False
        self._base = 0
        """The graph's revision when every hop had been compared."""

    def edited(self, key: Key, *, existed: bool, exists: bool) -> None:
        if not self._started:
            return
        edit = _edit(existed, exists)
        if not self._edits:
            self._graph.step()
        if edit is EditKind.CHANGED and self._edits.get(key) is EditKind.CREATED:
            return
        self._edits[key] = edit

    def edited_while_stopped(self, key: Key, *, existed: bool, exists: bool) -> None:
        self._edits[key] = _edit(existed, exists)

    def started(self) -> None:
        """Ends start-up: later changes are edits."""
        self._started = True
        self.compared()

    def compared(self) -> None:
        """Forgets all edits, because every hop has been compared. Until start-up ends, recalled hops have not."""
        if not self._started:
            return
        self._edits.clear()
        self._stages.journal = {}
        self._base = self._graph.version[1]

    def of(
        self, *roots: NodeId, earlier: Iterable[Key] = (), waiver: Key | None = None, end: float | None = None
    ) -> tuple[EditCause, ...]:
        """Returns the edits of objects that the roots depend on. `waiver` was in effect until `end`. At start-up, also returns
        the edits of `earlier`, the objects that the roots depended on in an earlier process."""
        if not self._started and not self._edits:
            return ()
        causes: set[EditCause] = set()
        if not self._started:
            causes.update(EditCause(key, self._edits[key]) for key in earlier if key in self._edits)
        causes.update(filter(None, (self._cause(changed, waiver, end) for changed in self._changed(roots))))
        return tuple(sorted(causes))

    def _cause(self, changed: NodeId, waiver: Key | None, end: float | None) -> EditCause | None:
        source, *key = changed
        if source is OBJECTS and key[0] in self._edits:
            return EditCause(key[0], self._edits[key[0]])
        ended = self._started and source is BEFORE and key[0] == end
        return EditCause(waiver, EditKind.EXPIRED) if ended and waiver is not None and waiver not in self._edits else None

    def _changed(self, roots: Iterable[NodeId]) -> Iterator[NodeId]:
        """Yields the changed sources that the roots depend on."""
        todo, seen = list(roots), set(roots)
        while todo and len(seen) < MOST:
            id = todo.pop()
            dependencies = self._changed_dependencies(id)
            if not dependencies:
                yield id
            fresh = [dependency for dependency in dependencies if dependency not in seen]
            seen.update(fresh)
            todo += fresh

    def _changed_dependencies(self, id: NodeId) -> list[NodeId]:
        """Returns the changed reads of a query, or the changed members under a key of an index."""
        at = (id[0].index, *id[1:]) if isinstance(id[0], IndexSummary) else id
        listed = (self._stages.journal or {}).get(at, ())
        if node := self._graph.nodes.get(id):
            return [*(dep.id for dep in node.deps if dep.changed > self._base), *listed]
        if id[0] is not OBJECTS and len(id) == 2 and isinstance(id[1], Key):
            return [(OBJECTS, id[1]), *listed]  # a member that has left; its reads are no longer recorded
        return list(listed)


def _edit(existed: bool, exists: bool) -> EditKind:
    return EditKind.CHANGED if existed and exists else EditKind.CREATED if exists else EditKind.DELETED


def clause(causes: Iterable[EditCause]) -> str:
    """Returns the causes as a clause: `GatewayProfile default/prod was changed`."""
    return " and ".join(map(str, causes))
