"""The record of changes: when the verification of a hop changed, which edit by whom changed it, and who acknowledged it.

Entries form a chain. Each has a number and the SHA-256 of its canonical JSON, which contains the hash of the entry before it:

    1 Began ──hash──> 2 Weaker ──hash──> 3 New ──hash──> ... ──hash──> head

so `Record.faults` detects a changed, removed, inserted or moved entry. An attacker who can write the whole record can also
compute a new chain; only a head stored elsewhere, for example in the log, reveals that.

The record is bounded, and no owner can displace another's entries. It drops the oldest entries of the owner with the most, and
first those that neither weakened a hop nor let one begin without full verification. The next entry has a digest of the
remaining ones (`Gap`), because their hashes do not link them any more. Only from `Record.covered` on does the record prove
that nothing changed."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.times import UnixTime
from lasthop.engine.memory.causes import EditCause, EditKind
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import ChangeFact, ChangeKind, VerificationChange

MAX_ENTRIES: Final = 1000
MAX_GATEWAYS: Final = 64
"""Gateways per entry. More Gateways with the same change get another entry."""
LENGTH: Final = 300
"""Characters of a text of an entry."""
MAX_PARTS: Final = 20
"""Limit of facts per entry, parts per fact, and causes."""
MAX_NAMESPACES: Final = 1000
"""Limit of namespaces with a separate time of their last dropped entry."""
SAME_CHANGE_SECONDS: Final = 120.0
"""Seconds within which two replicas may report the same change."""

BEGAN: Final = "Began"
"""The effect of the entry that starts a record."""
INCIDENT: Final = "Incident"
"""The effect of an entry about the record itself."""
NEW: Final = "New"
NEW_REDUCED: Final = "NewReduced"
"""A new hop that connects without full verification."""
OPENED_REDUCED: Final = "OpenedReduced"
"""A hop that failed closed and now connects without full verification, which was not required before either."""
REMOVED: Final = "Removed"
RECORD: Final = "-"
"""The owner of entries about the record itself."""
ALL: Final = ""
"""All namespaces."""


class Edit(msgspec.Struct, frozen=True):
    """A change of one hop at some Gateways, without time and author, which the engine does not know."""

    backend: Key
    port: int
    before: HopVerification | None
    """None: no route led to the backend."""
    after: HopVerification | None
    """None: no route leads to the backend any more."""
    because: str
    change: VerificationChange
    gateways: tuple[Key, ...]
    causes: tuple[EditCause, ...] = ()


class RecordedCause(msgspec.Struct, frozen=True):
    object: str
    """For example `GatewayProfile default/prod`."""
    edit: EditKind
    who: str = ""
    """The author, if known: the field manager in a cluster; in a folder, the author of the commit or the file's owner."""


class RecordedFact(msgspec.Struct, frozen=True):
    subject: str
    text: str
    """For example `trusts CA new (SHA-256 ...), no longer trusts CA old (SHA-256 ...)`."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class RecordedHop(NamedTuple):
    gateway: str
    kind: str
    """Kind of the backend."""
    backend: str
    port: int


class Gap(msgspec.Struct, frozen=True):
    """Describes all dropped entries."""

    kept: str
    """`digest_of` the entries before this one; empty if they already had a fault."""
    until: dict[str, UnixTime]
    """Time of the latest dropped entry by namespace of the backend or Gateway."""


class Entry(msgspec.Struct, frozen=True):
    at: UnixTime
    """Time of the detection."""
    kind: str
    """Kind of the backend."""
    backend: str
    """For example `shop/api`."""
    port: int
    before: str
    """For example `verified (CA) for api.example`; empty: no route led to the backend."""
    after: str
    """Empty: no route leads to the backend any more."""
    because: str
    """The cause, as a clause."""
    weaker: bool = False
    acknowledged: str = ""
    """The object that acknowledges a weaker verification."""
    gateways: tuple[str, ...] = ()
    """The Gateways at which it changed."""
    effect: str = ""
    """A `ChangeKind`, NEW, NEW_REDUCED, OPENED_REDUCED or REMOVED; for entries about the record itself, BEGAN or INCIDENT."""
    facts: tuple[RecordedFact, ...] = ()
    causes: tuple[RecordedCause, ...] = ()
    """The objects whose edit caused the change. Empty without an edit, or if the source does not know the edits that were made
    while Lasthop was not running, as in a cluster."""
    gap: Gap | None = None
    """Describes the dropped entries, if some were dropped since the entry before."""
    number: int = 0
    previous: str = ""
    """The hash of the entry before."""
    hash: str = ""
    """Hash of all fields above."""

    @property
    def owner(self) -> str:
        """The namespace of the backend."""
        return Key.read(self.kind, self.backend).namespace if self.is_change else RECORD

    @property
    def is_change(self) -> bool:
        return self.effect not in (BEGAN, INCIDENT)

    @property
    def begins_reduced(self) -> bool:
        """Whether a hop begins to connect without full verification, though it was never stronger."""
        return self.effect in (NEW_REDUCED, OPENED_REDUCED)

    @property
    def address(self) -> str:
        return f"{'' if self.kind == 'Service' else f'{self.kind} '}{self.backend}:{self.port}"

    @property
    def change(self) -> str:
        """For example `verified (CA) -> plaintext`."""
        return f"{self.before or 'new'} -> {self.after or 'no longer used'}"

    @property
    def by(self) -> str:
        """The distinct authors of the causes; empty if not known."""
        return ", ".join(dict.fromkeys(cause.who for cause in self.causes if cause.who))

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(cause.object for cause in self.causes)

    @property
    def line(self) -> str:
        facts = "; ".join(fact.text for fact in self.facts)
        return f"{self.address}: {self.change}{f' ({facts})' if facts else ''}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.owner, *(Key.read("Gateway", gateway).namespace for gateway in self.gateways))


def canonical(entry: Entry) -> bytes:
    """Returns the bytes to hash: JSON of all fields but the hash, without spaces and with sorted keys."""
    document = msgspec.to_builtins(entry)
    del document["hash"]
    return msgspec.json.encode(document, order="sorted")


def digest(entry: Entry) -> str:
    return hashlib.sha256(canonical(entry)).hexdigest()


def digest_of(entries: Sequence[Entry]) -> str:
    return hashlib.sha256("".join(entry.hash for entry in entries).encode()).hexdigest()


def sealed(entry: Entry, last: Entry | None, head: str | None = None) -> Entry:
    """Returns an entry as the next of a chain. `head` is the hash that it follows, if it differs from the last entry's."""
    number, previous = (last.number + 1, last.hash) if last else (1, "")
    previous = previous if head is None else head
    bare = msgspec.structs.replace(entry, number=number, previous=previous, hash="")
    return msgspec.structs.replace(bare, hash=digest(bare))


def about_record(effect: str, text: str, now: float) -> Entry:
    return Entry(_milliseconds(now), "", "", 0, "", "", limited(text, LENGTH), effect=effect)


def entry_of(edit: Edit, now: float, author_of: Callable[[Key], str] = lambda key: "") -> Entry:
    before, after = (limited(state.words, LENGTH) if state else "" for state in (edit.before, edit.after))
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
        tuple(_fact(fact) for fact in edit.change.facts[:MAX_PARTS]),
        tuple(_cause(cause, author_of) for cause in edit.causes[:MAX_PARTS]),
    )


def _effect(edit: Edit) -> str:
    if edit.after is None:
        return REMOVED
    reduced = not edit.after.refused and edit.after.strength < Strength.VERIFIED
    if edit.before is None:
        return NEW_REDUCED if reduced else NEW
    return OPENED_REDUCED if reduced and edit.change.kind is ChangeKind.OPENED else str(edit.change.kind)


def _cause(cause: EditCause, author_of: Callable[[Key], str]) -> RecordedCause:
    author = "" if cause.edit is EditKind.EXPIRED else limited(author_of(cause.key), LENGTH)
    return RecordedCause(str(cause.key), cause.edit, author)


def _milliseconds(at: float) -> float:
    return math.floor(at * 1000) / 1000


def _fact(fact: ChangeFact) -> RecordedFact:
    added, removed = (tuple(limited(part, LENGTH) for part in parts[:MAX_PARTS]) for parts in (fact.added, fact.removed))
    return RecordedFact(str(fact.subject), limited(str(fact), LENGTH), added, removed)


class Record(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()
    """The entries in the order of the chain."""
    head: str = ""
    """The hash of the last entry."""
    revision: int = 0
    """Grows with each write. A lower number than before means that an old copy replaced the stored record."""

    @property
    def changes(self) -> tuple[Entry, ...]:
        """The changes, sorted by time."""
        return tuple(sorted((entry for entry in self.entries if entry.is_change), key=_by_time))

    @property
    def incidents(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.effect == INCIDENT)

    @property
    def since(self) -> float | None:
        """Unix time of the first recorded change; None if not known."""
        return next((entry.at for entry in reversed(self.entries) if entry.effect == BEGAN), None)

    @property
    def gap(self) -> Gap:
        return gap_of(self.entries)

    def covered(self, namespace: str = ALL) -> float | None:
        """Returns the time from which the record of a namespace (empty: of all) is complete; None if not known."""
        if self.since is None:
            return None
        until = self.gap.until
        dropped = until.values() if not namespace else [until[scope] for scope in (namespace, ALL) if scope in until]
        return max(self.since, *dropped) if dropped else self.since

    def entries_since(self, start: float, namespace: str = ALL) -> Iterator[Entry]:
        """Yields the entries of a namespace (empty: all) from a time on, in the order of the chain. A later entry of the chain
        counts even if its own time is earlier, because a clock may have been set back."""
        latest = -math.inf
        for entry in self.entries:
            latest = max(latest, entry.at)
            if latest >= start and (not namespace or not entry.is_change or namespace in entry.namespaces):
                yield entry

    def last_changes(self) -> dict[RecordedHop, Entry]:
        """Returns the last change of each hop in the order of the chain, because a clock may have been set back. Hops whose
        later changes may have been dropped are omitted."""
        last = {
            RecordedHop(gateway, entry.kind, entry.backend, entry.port): entry
            for entry in self.entries
            for gateway in entry.gateways  # entries about the record itself have none
        }
        dropped = self.gap.until
        return {
            hop: entry
            for hop, entry in last.items()
            if all(entry.at > dropped.get(namespace, -math.inf) for namespace in (entry.owner, ALL))
        }

    def faults(self) -> tuple[str, ...]:
        """Returns the faults of the chain as clauses; empty if no entry was changed, removed, inserted or moved."""
        last = self.entries[-1].hash if self.entries else ""
        cut = () if self.head == last else ("the latest entries are missing, or the head was changed",)
        return (*_faults(self.entries), *cut)


def _faults(entries: Sequence[Entry]) -> Iterator[str]:
    latest = next((index for index in reversed(range(len(entries))) if entries[index].gap), -1)
    if latest >= 0 and gap_of(entries).kept != digest_of(entries[:latest]):
        yield f"entries before entry {entries[latest].number} were changed, removed or inserted"
    yield from _broken_links(entries, latest)


def _broken_links(entries: Sequence[Entry], latest: int) -> Iterator[str]:
    """`latest`: index of the entry with the latest gap."""
    horizon = max(gap_of(entries).until.values(), default=-math.inf)
    number, time, previous = 0, -math.inf, ""
    for index, entry in enumerate(entries):
        if entry.hash != digest(entry):
            yield f"entry {entry.number} was changed"
        if entry.number <= number:
            yield f"entry {entry.number} is out of place"
        elif entry.number > number + 1:
            # The gap must also state a time until which the record is incomplete, no earlier than the entries around it.
            if index > latest or time > horizon:
                yield _missing(number + 1, entry.number - 1)
        elif entry.previous != previous:
            yield f"entry {entry.number} does not follow the one before it"
        number, time, previous = entry.number, entry.at, entry.hash


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"


def gap_of(entries: Sequence[Entry]) -> Gap:
    """Returns the latest gap, which describes all dropped entries."""
    return next((entry.gap for entry in reversed(entries) if entry.gap), Gap("", {}))


def _gap_after(entries: Sequence[Entry], until: dict[str, float], *, intact: bool) -> Gap:
    return Gap(digest_of(entries) if intact else "", until)


def _by_time(entry: Entry) -> tuple[float, int]:
    return entry.at, entry.number


def chained(
    entries: Iterable[Entry], after: Iterable[Entry] = (), limit: int = MAX_ENTRIES, head: str | None = None
) -> list[Entry]:
    """Appends entries to a chain. A full chain drops a tenth of its entries at once, because an entry must describe each gap.
    `head` is the one stored with the chain. If it belongs to a removed entry, new entries do not follow the remaining ones,
    and the fault remains."""
    chain = list(after)
    for entry in entries:
        gap = None
        if len(chain) >= limit:
            chain, gap = _without_oldest(chain, limit - max(1, limit // 10))
        chain.append(sealed(msgspec.structs.replace(entry, gap=gap), chain[-1] if chain else None, head))
        head = None
    return chain


def _without_oldest(chain: Sequence[Entry], limit: int) -> tuple[list[Entry], Gap]:
    dropped = _dropped(chain, limit)
    gap, kept = gap_of(chain), [entry for entry in chain if entry.number not in dropped]
    until, before = dict(gap.until), -math.inf
    for entry in chain:
        if entry.number not in dropped:
            before = max(before, entry.at)  # the clock may have been set back
            continue
        for namespace in entry.namespaces:
            until[namespace] = max(entry.at, before, until.get(namespace, entry.at))
    if len(until) > MAX_NAMESPACES:
        until = {ALL: max(until.values())}
    return kept, _gap_after(kept, until, intact=not any(_faults(chain)))


def _dropped(chain: Sequence[Entry], limit: int) -> set[int]:
    """Returns the numbers of the entries to drop. The last entry stays, because the next one continues it; so does the one
    that starts the record."""
    candidates = [entry for entry in chain[:-1] if entry.effect != BEGAN]
    excess = len(chain) - limit
    counts = Counter(entry.owner for entry in candidates)
    per_owner = share(counts, max(0, len(candidates) - excess))
    over = {owner: count - per_owner for owner, count in counts.items()}
    dropped: set[int] = set()
    for entry in sorted(candidates, key=lambda entry: entry.weaker or entry.begins_reduced):
        if len(dropped) < excess and over[entry.owner] > 0:
            dropped.add(entry.number)
            over[entry.owner] -= 1
    return dropped


def share(counts: Counter[str], limit: int) -> int:
    """Returns the number of entries per owner with which all entries fit."""
    remaining, owners = limit, len(counts)
    for count in sorted(counts.values()):
        if count * owners > remaining:
            return remaining // owners
        remaining, owners = remaining - count, owners - 1
    return limit


def joined(stored: Record, local: Record, *, continued: bool = True) -> Record:
    """Joins two records: entries that exist only in the local record of this replica continue the stored chain. If the stored
    chain is broken and the local one is an intact copy, the local chain is continued instead. With `continued`, this replica
    had read the stored record before it added entries, so its first entry is omitted."""
    revision = max(stored.revision, local.revision)
    if _contains(local, stored):
        return msgspec.structs.replace(local, revision=revision)
    if _contains(stored, local):
        return msgspec.structs.replace(stored, revision=revision)
    if _hashes(stored) & _hashes(local) and stored.faults() and not local.faults():
        base, other, begins = local, stored, False
    else:
        base, other, begins = stored, local, not continued
    added = [entry for entry in _unseen(base.entries, other.entries) if begins or entry.effect != BEGAN]
    return msgspec.structs.replace(_with_gap(_extended(base, added), other.gap.until), revision=revision)


def _contains(record: Record, other: Record) -> bool:
    """Returns whether a record contains another: a hash covers all entries before it."""
    return not other.entries or other.head in _hashes(record)


def _hashes(record: Record) -> set[str]:
    return {entry.hash for entry in record.entries}


def _unseen(recorded: Iterable[Entry], candidates: Iterable[Entry]) -> Iterator[Entry]:
    """Yields the candidates that are not recorded. Two replicas may have recorded the same change, each by its own clock."""
    times: dict[tuple[object, ...], list[float]] = {}
    hashes = set()
    for entry in recorded:
        times.setdefault(_content(entry), []).append(entry.at)
        hashes.add(entry.hash)
    for entry in candidates:
        candidate_times = times.get(_content(entry), []) if entry.effect != BEGAN else []
        apart, nearest = min(((abs(entry.at - at), at) for at in candidate_times), default=(math.inf, 0.0))
        if apart <= SAME_CHANGE_SECONDS:
            candidate_times.remove(nearest)
        elif entry.hash not in hashes:
            yield entry


def _content(entry: Entry) -> tuple[object, ...]:
    hop = (entry.kind, entry.backend, entry.port, entry.gateways)
    return entry.effect, *hop, entry.before, entry.after, entry.because


def _extended(record: Record, added: Sequence[Entry]) -> Record:
    if not added:
        return record
    chain = chained(added, record.entries, head=record.head)
    return msgspec.structs.replace(record, entries=tuple(chain), head=chain[-1].hash)


def _with_gap(record: Record, until: Mapping[str, float]) -> Record:
    """Adds an entry with the gap of another chain, if that chain dropped later entries."""
    old_gap = record.gap
    if all(at <= old_gap.until.get(namespace, -math.inf) for namespace, at in until.items()):
        return record
    latest = {namespace: max(at, old_gap.until.get(namespace, at)) for namespace, at in {**old_gap.until, **until}.items()}
    last = record.entries[-1]
    note = about_record(INCIDENT, "was merged with one that had dropped entries", last.at)
    gap = _gap_after(record.entries, latest, intact=not record.faults())
    stated = sealed(msgspec.structs.replace(note, gap=gap), last, record.head)
    return msgspec.structs.replace(record, entries=(*record.entries, stated), head=stated.hash)


class ChangeRecord:
    """The record of this process, merged with the stored one."""

    def __init__(self) -> None:
        self._record = Record()
        self._added: list[Entry] = []
        """Entries that are not yet in the chain, because thousands of changes may come one after the other."""
        self.version = 0
        """Grows with every new entry."""

    @property
    def record(self) -> Record:
        if self._added:
            added, self._added = self._added, []
            self._record = _extended(self._record, added)
        return self._record

    @property
    def changes(self) -> tuple[Entry, ...]:
        return self.record.changes

    def begin(self, state: str, now: float) -> None:
        """Starts the record with the current state, unless it continues an earlier one."""
        if self.record.since is None:
            self._add([about_record(BEGAN, state, now)])

    def add(self, edits: Iterable[Edit], now: float, author_of: Callable[[Key], str] = lambda key: "") -> tuple[Entry, ...]:
        """Adds entries for edits and returns them. `author_of` returns the author of an object's last edit."""
        return self._add([entry_of(edit, now, author_of) for edit in edits])

    def note(self, incident: str, now: float) -> None:
        """Records an incident of the record itself."""
        self._add([about_record(INCIDENT, incident, now)])

    def merge(self, stored: Record) -> None:
        merged = joined(stored, self.record)
        self.version += merged.entries != self._record.entries
        self._record = merged

    def _add(self, new: list[Entry]) -> tuple[Entry, ...]:
        if new:
            self._added += new
            self.version += 1
        if len(self._added) > MAX_ENTRIES:
            _ = self.record
        return tuple(new)
