"""The record of changes: when a backend began to be verified otherwise, because of which edit, and who has acknowledged it.

It is bounded, and no owner can push another's entries out: the oldest of whoever has most are dropped first, and of those the
ones that weakened nothing. The record covers the time from `Record.covered` on: only for that time does it prove that nothing
changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import VerificationChange

MAX_CHANGES: Final = 1000
MAX_GATEWAYS: Final = 8
"""Of one entry that are named."""
LENGTH: Final = 300
"""Characters of a text of an entry."""
MAX_DROPPED: Final = 1000
"""Namespaces of which it is known until when entries were dropped."""
MAX_INCIDENTS: Final = 20
SAME: Final = 120.0
"""Seconds between which two replicas may have seen the same change."""


class Edit(msgspec.Struct, frozen=True):
    """A change as it is noticed; nobody has looked at a clock yet."""

    backend: Key
    port: int
    before: HopVerification
    after: HopVerification
    because: str
    change: VerificationChange
    gateways: tuple[Key, ...]


class Change(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    at: float
    """Unix time at which it was noticed."""
    kind: str
    """Of the backend."""
    backend: str
    """As `shop/api`."""
    port: int
    before: str
    """As `verified (CA) for api.example`."""
    after: str
    because: str
    """The edit, as a clause."""
    weaker: bool = False
    acknowledged: str = ""
    """By whom, of what is weaker."""
    gateways: tuple[str, ...] = ()
    """Those that lead there, the first few."""
    effect: str = ""
    """A `ChangeKind`; empty: recorded by an older version."""
    facts: tuple[str, ...] = ()
    """What came and went, as `trusts CA new (SHA-256 ...), no longer trusts CA old (SHA-256 ...)`."""

    @property
    def owner(self) -> str:
        """The namespace of the backend."""
        return Key.read(self.kind, self.backend).namespace

    @property
    def address(self) -> str:
        return f"{'' if self.kind == 'Service' else f'{self.kind} '}{self.backend}:{self.port}"


def change(edit: Edit, now: float) -> Change:
    before, after = (limited(each.words, LENGTH) for each in (edit.before, edit.after))
    return Change(
        math.floor(now * 1000) / 1000,
        edit.backend.kind,
        edit.backend.path,
        edit.port,
        before,
        after,
        limited(edit.because, LENGTH),
        edit.change.weaker,
        limited(edit.after.acknowledged, LENGTH),
        tuple(gateway.path for gateway in edit.gateways),
        edit.change.kind,
        tuple(limited(str(fact), LENGTH) for fact in edit.change.facts),
    )


class Incident(msgspec.Struct, frozen=True, order=True):
    """Something that happened to the record itself."""

    at: float
    what: str


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    changes: tuple[Change, ...] = ()
    """In the order of time."""
    since: float | None = None
    """Unix time from which changes were recorded; None: not known."""
    dropped: Mapping[str, float] = {}
    """By namespace, of backend or Gateway: the time of the latest change that was dropped for want of room."""
    incidents: tuple[Incident, ...] = ()
    """The latest, in the order of time."""
    revision: int = 0
    """Grows with each write: a stored record that has a lower one than before was replaced by an old copy."""

    def covered(self, namespace: str = "") -> float | None:
        """Returns the time from which every change of a namespace (empty: of all) is here; None: not known."""
        if self.since is None:
            return None
        dropped = self.dropped.values() if not namespace else [self.dropped.get(namespace, 0.0)]
        return max(self.since, *dropped) if dropped else self.since


def bounded(changes: Iterable[Change], limit: int = MAX_CHANGES) -> tuple[Change, ...]:
    """Returns what is kept, in the order of time."""
    return _bounded(changes, limit)[0]


def _bounded(changes: Iterable[Change], limit: int) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Returns what is kept and what is dropped."""
    kept = sorted(changes)
    counts = Counter(each.owner for each in kept)
    excess = len(kept) - limit
    if excess <= 0:
        return tuple(kept), ()
    each_owner = share(counts, limit)
    dropped: set[int] = set()
    over = {owner: count - each_owner for owner, count in counts.items() if count > each_owner}
    for weaker in (False, True):
        for index, each in enumerate(kept):
            if len(dropped) < excess and over.get(each.owner, 0) > 0 and each.weaker == weaker:
                dropped.add(index)
                over[each.owner] -= 1
    left = tuple(each for index, each in enumerate(kept) if index not in dropped)
    return left, tuple(kept[index] for index in sorted(dropped))


def share(counts: Counter[str], limit: int) -> int:
    """Returns how many entries an owner may have so that all of them fit."""
    left, owners = limit, len(counts)
    for count in sorted(counts.values()):
        if count * owners > left:
            return left // owners
        left, owners = left - count, owners - 1
    return limit


def merged(stored: Iterable[Change], own: Iterable[Change]) -> tuple[Change, ...]:
    """Returns what two replicas have recorded, each change once: both may have seen it, each by its own clock."""
    found = sorted(stored)
    seen: dict[tuple[object, ...], list[float]] = {}
    for each in found:
        seen.setdefault(_what(each), []).append(each.at)
    for each in sorted(own):
        times = seen.get(_what(each), [])
        same = next((at for at in times if abs(each.at - at) <= SAME), None)
        if same is None:
            found.append(each)
        else:
            times.remove(same)
    return tuple(sorted(found))


def joined(stored: Record, own: Record) -> Record:
    """Returns two records as one. The earlier of two beginnings counts: a replica reads the record before it adds to it, so
    that one continues the other."""
    begun = [each.since for each in (stored, own) if each.since is not None]
    dropped = {**stored.dropped}
    for namespace, at in own.dropped.items():
        dropped[namespace] = max(at, dropped.get(namespace, at))
    incidents = tuple(sorted({*stored.incidents, *own.incidents}))[-MAX_INCIDENTS:]
    revision = max(stored.revision, own.revision)
    return limited_record(Record(merged(stored.changes, own.changes), min(begun, default=None), dropped, incidents, revision))


def limited_record(found: Record, limit: int = MAX_CHANGES) -> Record:
    """Returns as much as is kept, with until when it is incomplete."""
    kept, gone = _bounded(found.changes, limit)
    if not gone:
        return found
    dropped = {**found.dropped}
    for each in gone:
        for namespace in (each.owner, *_namespaces(each)):
            dropped[namespace] = max(each.at, dropped.get(namespace, each.at))
    since = found.since
    if len(dropped) > MAX_DROPPED:
        since, dropped = max((since or 0.0), *dropped.values()), {}
    return msgspec.structs.replace(found, changes=kept, dropped=dropped, since=since)


def _what(each: Change) -> tuple[object, ...]:
    return each.kind, each.backend, each.port, each.before, each.after, each.because


def since(changes: Iterable[Change], start: float, namespace: str = "") -> tuple[Change, ...]:
    """Returns those of a namespace (empty: all) from a time on, the latest last."""
    return tuple(
        each for each in changes if each.at >= start and (not namespace or namespace in (each.owner, *_namespaces(each)))
    )


def _namespaces(each: Change) -> Iterable[str]:
    return (Key.read("Gateway", gateway).namespace for gateway in each.gateways)


class ChangeRecord:
    """What this process has recorded, and what it was given of an earlier one."""

    def __init__(self) -> None:
        self._record = Record()
        self._added: list[Change] = []
        """Those that are not yet in it: thousands of changes may come in one after the other."""
        self.version = 0
        """Grows whenever there is more."""

    @property
    def record(self) -> Record:
        if self._added:
            together = (*self._record.changes, *self._added)
            self._added = []
            self._record = limited_record(msgspec.structs.replace(self._record, changes=tuple(sorted(together))))
        return self._record

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.record.changes

    def begin(self, now: float) -> None:
        """Takes the time from which changes are recorded, unless an earlier record goes on."""
        if self._record.since is None:
            self._keep(msgspec.structs.replace(self.record, since=now))

    def add(self, edits: Iterable[Edit], now: float) -> tuple[Change, ...]:
        """Returns what is new."""
        new = tuple(change(edit, now) for edit in edits)
        if new:
            self._added += new
            self.version += 1
        if len(self._added) > MAX_CHANGES:
            self._keep(self.record)
        return new

    def note(self, what: str, now: float) -> None:
        """Records what has happened to the record itself."""
        incidents = (*self.record.incidents, Incident(now, limited(what, LENGTH)))
        self._keep(msgspec.structs.replace(self.record, incidents=incidents[-MAX_INCIDENTS:]))

    def merge(self, stored: Record) -> None:
        self._keep(joined(stored, self.record))

    def _keep(self, record: Record) -> None:
        self.version += record != self._record
        self._record = record
