"""The record of changes: when a hop began to be verified otherwise, by which edit and whose, and who has acknowledged it.

Entries form a chain. Each has a number and the SHA-256 of its canonical JSON, which contains the hash of the entry before it:

    1 Began ──hash──> 2 Weaker ──hash──> 3 New ──hash──> ... ──hash──> head

so an entry that is changed, removed, inserted or moved is noticed (`Record.faults`). Whoever can write the whole record can
also compute a new chain: only a head that was noted elsewhere, as in the log, shows that.

The record is bounded, and no owner can push another's entries out: the oldest of whoever has most are dropped first, and of
those the ones that neither weakened a hop nor added one that is less than verified. The entry that is added when others are
dropped states which (`Gap`), so that a gap which no entry states is a fault. The record covers the time from `Record.covered`
on: only for that time does it prove that nothing changed.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.memory.causes import EditCause, EditKind
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import ChangeFact, VerificationChange

MAX_ENTRIES: Final = 1000
MAX_GATEWAYS: Final = 64
"""Of one entry; where more Gateways changed in the same way, there is another entry."""
LENGTH: Final = 300
"""Characters of a text of an entry."""
MAX_PARTS: Final = 20
"""Facts of an entry, parts of a fact, and causes."""
MAX_NAMESPACES: Final = 1000
"""Of which it is known until when entries were dropped."""
SAME: Final = 120.0
"""Seconds between which two replicas may have seen the same change."""

BEGAN: Final = "Began"
"""The effect of the entry from which on changes are recorded."""
INCIDENT: Final = "Incident"
"""The effect of an entry about the record itself."""
NEW: Final = "New"
NEW_REDUCED: Final = "NewReduced"
"""A new hop that is connected and less than verified."""
REMOVED: Final = "Removed"
RECORD: Final = "-"
"""The owner of entries about the record itself."""
ALL: Final = ""
"""All namespaces."""


class Edit(msgspec.Struct, frozen=True):
    """A change of one hop at some Gateways, as the engine notices it: without time and author."""

    backend: Key
    port: int
    before: HopVerification | None
    """None: no route led there."""
    after: HopVerification | None
    """None: no route leads there any more."""
    because: str
    change: VerificationChange
    gateways: tuple[Key, ...]
    causes: tuple[EditCause, ...] = ()


class RecordedCause(msgspec.Struct, frozen=True):
    object: str
    """As `GatewayProfile default/prod`."""
    edit: EditKind
    who: str = ""
    """As far as it is known: the manager in a cluster, the author of the commit or the file's owner in a folder."""


class RecordedFact(msgspec.Struct, frozen=True):
    subject: str
    text: str
    """As `trusts CA new (SHA-256 ...), no longer trusts CA old (SHA-256 ...)`."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class RecordedHop(NamedTuple):
    gateway: str
    kind: str
    """Of the backend."""
    backend: str
    port: int


class Gap(msgspec.Struct, frozen=True):
    """All entries that have been dropped."""

    missing: tuple[tuple[int, int], ...]
    """Their numbers, as ranges with both ends."""
    until: dict[str, float]
    """By namespace, of backend or Gateway: the time of the latest that was dropped."""


class Entry(msgspec.Struct, frozen=True):
    at: float
    """Unix time at which it was noticed."""
    kind: str
    """Of the backend."""
    backend: str
    """As `shop/api`."""
    port: int
    before: str
    """As `verified (CA) for api.example`; empty: no route led there."""
    after: str
    """Empty: no route leads there any more."""
    because: str
    """The edit, as a clause."""
    weaker: bool = False
    acknowledged: str = ""
    """By whom, of what is weaker."""
    gateways: tuple[str, ...] = ()
    """Those at which it changed."""
    effect: str = ""
    """A `ChangeKind`, NEW, NEW_REDUCED or REMOVED; or what the entry says of the record itself: BEGAN or INCIDENT."""
    facts: tuple[RecordedFact, ...] = ()
    causes: tuple[RecordedCause, ...] = ()
    """The objects whose edit caused it. Empty: it happened while Lasthop was not running, or no object was edited."""
    gap: Gap | None = None
    """What had been dropped when this was added, if that had changed."""
    number: int = 0
    previous: str = ""
    """The hash of the entry before."""
    hash: str = ""
    """Of all of the above."""

    @property
    def owner(self) -> str:
        """The namespace of the backend."""
        return Key.read(self.kind, self.backend).namespace if self.is_change else RECORD

    @property
    def is_change(self) -> bool:
        return self.effect not in (BEGAN, INCIDENT)

    @property
    def address(self) -> str:
        return f"{'' if self.kind == 'Service' else f'{self.kind} '}{self.backend}:{self.port}"

    @property
    def change(self) -> str:
        """As `verified (CA) -> plaintext`."""
        return f"{self.before or 'new'} -> {self.after or 'no longer used'}"

    @property
    def by(self) -> str:
        """The authors of what caused it, each once; empty: not known."""
        return ", ".join(dict.fromkeys(each.who for each in self.causes if each.who))

    @property
    def objects(self) -> tuple[str, ...]:
        """Those whose edit caused it."""
        return tuple(each.object for each in self.causes)

    @property
    def line(self) -> str:
        facts = "; ".join(each.text for each in self.facts)
        return f"{self.address}: {self.change}{f' ({facts})' if facts else ''}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.owner, *(Key.read("Gateway", gateway).namespace for gateway in self.gateways))


def canonical(entry: Entry) -> bytes:
    """Returns what is hashed: JSON without spaces, its keys sorted, of everything but the hash."""
    document = msgspec.to_builtins(entry)
    del document["hash"]
    return msgspec.json.encode(document, order="sorted")


def digest(entry: Entry) -> str:
    return hashlib.sha256(canonical(entry)).hexdigest()


def sealed(entry: Entry, last: Entry | None, head: str | None = None) -> Entry:
    """Returns an entry as the next of a chain. `head`: the hash that it follows, if that is not the one of the last entry."""
    number, previous = (last.number + 1, last.hash) if last else (1, "")
    previous = previous if head is None else head
    bare = msgspec.structs.replace(entry, number=number, previous=previous, hash="")
    return msgspec.structs.replace(bare, hash=digest(bare))


def about_record(effect: str, what: str, now: float) -> Entry:
    return Entry(_milliseconds(now), "", "", 0, "", "", limited(what, LENGTH), effect=effect)


def entry_of(edit: Edit, now: float, who: Callable[[Key], str] = lambda key: "") -> Entry:
    before, after = (limited(each.words, LENGTH) if each else "" for each in (edit.before, edit.after))
    return Entry(
        _milliseconds(now),
        edit.backend.kind,
        edit.backend.path,
        edit.port,
        before,
        after,
        limited(edit.because, LENGTH),
        edit.change.weaker,
        limited(edit.after.acknowledged, LENGTH) if edit.after else "",
        tuple(gateway.path for gateway in edit.gateways),
        _effect(edit),
        tuple(_fact(each) for each in edit.change.facts[:MAX_PARTS]),
        tuple(_cause(each, who) for each in edit.causes[:MAX_PARTS]),
    )


def _effect(edit: Edit) -> str:
    if edit.after is None:
        return REMOVED
    if edit.before is None:
        reduced = not edit.after.refused and edit.after.strength < Strength.VERIFIED
        return NEW_REDUCED if reduced else NEW
    return str(edit.change.kind)


def _cause(cause: EditCause, who: Callable[[Key], str]) -> RecordedCause:
    author = "" if cause.edit is EditKind.EXPIRED else limited(who(cause.key), LENGTH)
    return RecordedCause(str(cause.key), cause.edit, author)


def _milliseconds(at: float) -> float:
    return math.floor(at * 1000) / 1000


def _fact(fact: ChangeFact) -> RecordedFact:
    added, removed = (tuple(limited(part, LENGTH) for part in parts[:MAX_PARTS]) for parts in (fact.added, fact.removed))
    return RecordedFact(str(fact.subject), limited(str(fact), LENGTH), added, removed)


class Record(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    """In the order of the chain."""
    head: str = ""
    """The hash of the last one."""
    revision: int = 0
    """Grows with each write: a stored record that has a lower one than before was replaced by an old copy."""

    @property
    def changes(self) -> tuple[Entry, ...]:
        """In the order of time."""
        return tuple(sorted((each for each in self.entries if each.is_change), key=_by_time))

    @property
    def incidents(self) -> tuple[Entry, ...]:
        return tuple(each for each in self.entries if each.effect == INCIDENT)

    @property
    def since(self) -> float | None:
        """Unix time from which changes were recorded; None: not known."""
        return next((each.at for each in reversed(self.entries) if each.effect == BEGAN), None)

    @property
    def gap(self) -> Gap:
        return gap_of(self.entries)

    def covered(self, namespace: str = ALL) -> float | None:
        """Returns the time from which every change of a namespace (empty: of all) is here; None: not known."""
        if self.since is None:
            return None
        until = self.gap.until
        dropped = until.values() if not namespace else [until[each] for each in (namespace, ALL) if each in until]
        return max(self.since, *dropped) if dropped else self.since

    def last_changes(self) -> dict[RecordedHop, Entry]:
        """Returns the last change of each hop, by the order of the chain, because a clock may have been set back. It lacks
        hops of which a later one may have been dropped."""
        found = {
            RecordedHop(gateway, each.kind, each.backend, each.port): each
            for each in self.entries
            if each.is_change
            for gateway in each.gateways
        }
        dropped = self.gap.until
        return {
            hop: each
            for hop, each in found.items()
            if all(each.at > dropped.get(namespace, -math.inf) for namespace in (each.owner, ALL))
        }

    def faults(self) -> tuple[str, ...]:
        """Returns where the chain is broken, as clauses; none: nothing was changed, removed, inserted or moved."""
        last = self.entries[-1].hash if self.entries else ""
        cut = () if self.head == last else ("the latest entries are missing, or the head was changed",)
        return (*_faults(self.entries), *cut)


def _faults(entries: Sequence[Entry]) -> Iterator[str]:
    gap = gap_of(entries)
    horizon = max(gap.until.values(), default=-math.inf)
    number, at, previous = 0, -math.inf, ""
    for each in entries:
        if each.hash != digest(each):
            yield f"entry {each.number} was changed"
        if each.number <= number:
            yield f"entry {each.number} is out of place"
        elif each.number > number + 1:
            stated = any(first <= number + 1 and each.number - 1 <= last for first, last in gap.missing)
            # Whoever states a gap must state until when the record is not complete: no earlier than what is around it.
            if not stated or at > horizon:
                yield _missing(number + 1, each.number - 1)
        elif each.previous != previous:
            yield f"entry {each.number} does not follow the one before it"
        number, at, previous = each.number, each.at, each.hash


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"


def gap_of(entries: Sequence[Entry]) -> Gap:
    """Returns what has been dropped, as the latest entry states it."""
    return next((each.gap for each in reversed(entries) if each.gap), Gap((), {}))


def _by_time(entry: Entry) -> tuple[float, int]:
    return entry.at, entry.number


def chained(
    entries: Iterable[Entry], after: Iterable[Entry] = (), limit: int = MAX_ENTRIES, head: str | None = None
) -> list[Entry]:
    """Returns a chain with entries added to it, as many as are kept. Of a full one a tenth is dropped at once, because each
    time is stated in an entry. `head` is the one that is stored with the chain: where that is of an entry which was removed,
    what is added does not follow the entries that are left, and the fault remains."""
    chain = list(after)
    for each in entries:
        gap = None
        if len(chain) >= limit:
            chain, gap = _without_oldest(chain, limit - max(1, limit // 10))
        chain.append(sealed(msgspec.structs.replace(each, gap=gap), chain[-1] if chain else None, head))
        head = None
    return chain


def _without_oldest(chain: Sequence[Entry], limit: int) -> tuple[list[Entry], Gap]:
    dropped = _dropped(chain, limit)
    gap, kept = gap_of(chain), [each for each in chain if each.number not in dropped]
    until, before = dict(gap.until), -math.inf
    for each in chain:
        if each.number not in dropped:
            before = max(before, each.at)  # the clock may have been set back
            continue
        for namespace in each.namespaces:
            until[namespace] = max(each.at, before, until.get(namespace, each.at))
    if len(until) > MAX_NAMESPACES:
        until = {ALL: max(until.values())}
    return kept, Gap(_merged((*gap.missing, *((number, number) for number in dropped))), until)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _dropped(chain: Sequence[Entry], limit: int) -> set[int]:
    """Returns the numbers of those that are dropped. The last one stays, because the next one continues it; so does what says
    from when the record is complete."""
    able = [each for each in chain[:-1] if each.effect != BEGAN]
    excess = len(chain) - limit
    counts = Counter(each.owner for each in able)
    share_of_each = share(counts, max(0, len(able) - excess))
    over = {owner: count - share_of_each for owner, count in counts.items()}
    dropped: set[int] = set()
    for each in sorted(able, key=_reduces):
        if len(dropped) < excess and over[each.owner] > 0:
            dropped.add(each.number)
            over[each.owner] -= 1
    return dropped


def _reduces(entry: Entry) -> bool:
    return entry.weaker or entry.effect == NEW_REDUCED


def share(counts: Counter[str], limit: int) -> int:
    """Returns how many entries an owner may have so that all of them fit."""
    left, owners = limit, len(counts)
    for count in sorted(counts.values()):
        if count * owners > left:
            return left // owners
        left, owners = left - count, owners - 1
    return limit


def joined(stored: Record, own: Record, *, continued: bool = True) -> Record:
    """Returns two records as one: the stored chain goes on with what only this replica has seen. If the stored chain is
    broken, and our own is an intact copy of it, ours goes on. `continued`: this replica had read the stored record before it
    added to its own, so that its own beginning does not count."""
    revision = max(stored.revision, own.revision)
    if _holds(own, stored):
        return msgspec.structs.replace(own, revision=revision)
    if _holds(stored, own):
        return msgspec.structs.replace(stored, revision=revision)
    if _hashes(stored) & _hashes(own) and stored.faults() and not own.faults():
        base, other, begins = own, stored, False
    else:
        base, other, begins = stored, own, not continued
    added = [each for each in _unseen(base.entries, other.entries) if begins or each.effect != BEGAN]
    return msgspec.structs.replace(_with_gap(_extended(base, added), other.gap.until), revision=revision)


def _holds(record: Record, other: Record) -> bool:
    """Returns whether a record has everything of another: a hash covers all entries before it."""
    return not other.entries or other.head in _hashes(record)


def _hashes(record: Record) -> set[str]:
    return {each.hash for each in record.entries}


def _unseen(known: Iterable[Entry], found: Iterable[Entry]) -> Iterator[Entry]:
    """Yields what is not known, each once: two replicas may have seen the same change, each by its own clock."""
    times: dict[tuple[object, ...], list[float]] = {}
    hashes = set()
    for each in known:
        times.setdefault(_what(each), []).append(each.at)
        hashes.add(each.hash)
    for each in found:
        seen = times.get(_what(each), []) if each.effect != BEGAN else []
        apart, nearest = min(((abs(each.at - at), at) for at in seen), default=(math.inf, 0.0))
        if apart <= SAME:
            seen.remove(nearest)
        elif each.hash not in hashes:
            yield each


def _what(each: Entry) -> tuple[object, ...]:
    return each.effect, each.kind, each.backend, each.port, each.gateways, each.before, each.after, each.because


def _extended(record: Record, added: Sequence[Entry]) -> Record:
    if not added:
        return record
    chain = chained(added, record.entries, head=record.head)
    return msgspec.structs.replace(record, entries=tuple(chain), head=chain[-1].hash)


def _with_gap(record: Record, until: Mapping[str, float]) -> Record:
    """Adds an entry that states until when another chain had dropped entries, where that is later."""
    own = record.gap
    if all(at <= own.until.get(namespace, -math.inf) for namespace, at in until.items()):
        return record
    latest = {namespace: max(at, own.until.get(namespace, at)) for namespace, at in {**own.until, **until}.items()}
    last = record.entries[-1]
    note = about_record(INCIDENT, "was merged with one that had dropped entries", last.at)
    stated = sealed(msgspec.structs.replace(note, gap=Gap(own.missing, latest)), last, record.head)
    return msgspec.structs.replace(record, entries=(*record.entries, stated), head=stated.hash)


def since(changes: Iterable[Entry], start: float, namespace: str = ALL) -> tuple[Entry, ...]:
    """Returns those of a namespace (empty: all) from a time on, the latest last."""
    return tuple(each for each in changes if each.at >= start and (not namespace or namespace in each.namespaces))


class ChangeRecord:
    """What this process has recorded, and what it was given of an earlier one."""

    def __init__(self) -> None:
        self._record = Record()
        self._added: list[Entry] = []
        """Those that are not yet in the chain: thousands of changes may come in one after the other."""
        self.version = 0
        """Grows whenever there is more."""

    @property
    def record(self) -> Record:
        if self._added:
            added, self._added = self._added, []
            self._record = _extended(self._record, added)
        return self._record

    @property
    def changes(self) -> tuple[Entry, ...]:
        return self.record.changes

    def begin(self, what: str, now: float) -> None:
        """Takes the time from which changes are recorded, and what was the case then; unless an earlier record goes on."""
        if self.record.since is None:
            self._add([about_record(BEGAN, what, now)])

    def add(self, edits: Iterable[Edit], now: float, who: Callable[[Key], str] = lambda key: "") -> tuple[Entry, ...]:
        """Returns what is new. `who` returns the author of an object's last edit."""
        return self._add([entry_of(each, now, who) for each in edits])

    def note(self, what: str, now: float) -> None:
        """Records what has happened to the record itself."""
        self._add([about_record(INCIDENT, what, now)])

    def merge(self, stored: Record) -> None:
        joint = joined(stored, self.record)
        self.version += joint.entries != self._record.entries
        self._record = joint

    def _add(self, new: list[Entry]) -> tuple[Entry, ...]:
        if new:
            self._added += new
            self.version += 1
        if len(self._added) > MAX_ENTRIES:
            _ = self.record
        return tuple(new)
