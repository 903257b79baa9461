"""Saves across restarts how each backend was verified and the record of changes, so that a policy which is deleted while
Lasthop is stopped is noticed too. Losing it loses only that, and is noticed: `lost` compares what is stored with what was."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.memory.verification import Port, PortMemory
from lasthop.engine.outputs.audit.changes import Change, Incident, Record, share
from lasthop.engine.plan.verdict import Basis

FILE: Final = "verification.json"
MAX_HASHES: Final = 2000
"""Of CAs and pins, that a packed memory holds: some 100 bytes each."""
LARGEST: Final = 64 << 20
"""Bytes of a memory that is read."""
SHARE: Final = 1000
"""How many times as long as encoding took is waited at least until the next time: it is written whole, so with thousands of
ports not as often, or an edit would cost more the more of them there are ..."""
LONGEST_PAUSE: Final = 30.0
"""... but after these seconds all the same."""


class Memory(msgspec.Struct, frozen=True):
    ports: Mapping[Port, PortMemory] = {}
    record: Record = Record()


class Damaged(msgspec.Struct, frozen=True):
    """Something is stored that cannot be read."""

    why: str
    """Continues a sentence, as `is no JSON`."""


class _StoredPort(msgspec.Struct, frozen=True, array_like=True):
    backend: Key
    number: int
    known: PortMemory
    bases: tuple[str, ...] = ()
    """Those of `known.now` and of each that is held, by their keys in `_Stored.bases`; empty: none."""


class _Stored(msgspec.Struct, frozen=True):
    ports: tuple[_StoredPort, ...] = ()
    changes: tuple[Change, ...] = ()
    since: float | None = None
    dropped: dict[str, float] = {}
    incidents: tuple[Incident, ...] = ()
    revision: int = 0
    bases: dict[str, Basis] = {}
    """Each once: thousands of ports may share the CAs of one bundle."""


def pause(interval: float, took: float) -> float:
    """Returns the seconds until the next write, after one that took so long."""
    return max(interval, min(SHARE * took, LONGEST_PAUSE))


class _Encoded(NamedTuple):
    known: PortMemory
    port: msgspec.Raw
    bases: dict[str, Basis]


class Encoder:
    """Encodes one memory again and again, and only those ports anew that have changed since the last time."""

    def __init__(self) -> None:
        self._known: dict[Port, _Encoded] = {}

    def __call__(self, memory: Memory) -> bytes:
        before, self._known = self._known, {}
        bases: dict[str, Basis] = {}
        for port, known in memory.ports.items():
            one = before.get(port)
            if one is None or one.known is not known:
                one = _encoded(port, known)
            self._known[port] = one
            bases |= one.bases
        record = memory.record
        document = {
            "ports": [each.port for each in self._known.values()],
            "changes": record.changes,
            "since": record.since,
            "dropped": record.dropped,
            "incidents": record.incidents,
            "revision": record.revision,
            "bases": bases,
        }
        return msgspec.json.encode(document)


def _encoded(port: Port, known: PortMemory) -> _Encoded:
    found = [each.basis for each in (known.now, *known.held)]
    keys = ["" if basis is None else hashlib.blake2b(msgspec.json.encode(basis), digest_size=8).hexdigest() for basis in found]
    bare = _with_bases(known, [None] * len(found))
    bases = {key: basis for key, basis in zip(keys, found, strict=True) if basis is not None}
    return _Encoded(known, msgspec.Raw(msgspec.json.encode(_StoredPort(*port, bare, tuple(keys)))), bases)


def _with_bases(known: PortMemory, bases: Sequence[Basis | None]) -> PortMemory:
    now, *held = (
        msgspec.structs.replace(each, basis=basis) for each, basis in zip((known.now, *known.held), bases, strict=True)
    )
    return PortMemory(now, tuple(held))


def decode(content: bytes) -> Memory | Damaged:
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Damaged(f"cannot be decoded: {error}")
    ports = {}
    for each in stored.ports:
        count = 1 + len(each.known.held)
        keys = each.bases if len(each.bases) == count else ("",) * count
        ports[Port(each.backend, each.number)] = _with_bases(each.known, [stored.bases.get(key) for key in keys])
    # An older version has not written since when it recorded; its first change was not before that.
    since = stored.since if stored.since is not None else min((each.at for each in stored.changes), default=None)
    return Memory(ports, Record(stored.changes, since, stored.dropped, stored.incidents, stored.revision))


def lost(stored: Memory | Damaged | None, revision: int) -> str:
    """Says what has happened to a record that was at this revision when it was last read or written (0: never); empty if it
    is there. `stored` is what there is of it now."""
    match stored:
        case Damaged():
            return f"was damaged: it {stored.why}"
        case None:
            return "was deleted" if revision else ""
    if stored.record.revision < revision:
        return f"was replaced by an older copy (revision {stored.record.revision} after {revision})"
    return ""


def pack(memory: Memory, ports: int, encode: Encoder) -> bytes:
    """Returns it compressed, with at most so many ports and `MAX_HASHES`; where there are more, each namespace keeps its
    share."""
    kept = memory.ports if len(memory.ports) <= ports else _shares(memory.ports, ports)
    return gzip.compress(encode(Memory(_within(kept, MAX_HASHES), memory.record)), compresslevel=1, mtime=0)


def _within(known: Mapping[Port, PortMemory], hashes: int) -> Mapping[Port, PortMemory]:
    """Leaves out which CAs and pins there were, where namespaces have too many of them: hashes cannot be compressed."""
    counts = Counter[str]()
    seen: set[tuple[str, str]] = set()
    for port, each in known.items():
        for found in (each.now, *each.held):
            place = (port.backend.namespace, found.digest)
            if found.basis is not None and place not in seen:
                seen.add(place)
                counts[port.backend.namespace] += len(found.basis.cas) + len(found.basis.pins)
    if counts.total() <= hashes:
        return known
    most = share(counts, hashes)
    loud = {namespace for namespace, count in counts.items() if count > most}
    return {
        port: _with_bases(each, [None] * (1 + len(each.held))) if port.backend.namespace in loud else each
        for port, each in known.items()
    }


def _shares(known: Mapping[Port, PortMemory], ports: int) -> Mapping[Port, PortMemory]:
    each, taken = share(Counter(port.backend.namespace for port in known), ports), Counter[str]()
    kept: dict[Port, PortMemory] = {}
    for port in known:
        taken[port.backend.namespace] += 1
        if taken[port.backend.namespace] <= each:
            kept[port] = known[port]
    return kept


def unpack(content: bytes) -> Memory | Damaged:
    try:
        return decode(zlib.decompressobj(wbits=31).decompress(content, LARGEST))
    except zlib.error as error:
        return Damaged(f"cannot be decompressed: {error}")


def load(path: Path) -> Memory | Damaged | None:
    """Returns None if there is no such file."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Damaged(f"cannot be read: {error.strerror}")


Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Returns what changes whenever the file is written; None if it does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def save(path: Path, memory: Memory, encode: Encoder) -> Stamp | None:
    """Writes the whole file or nothing, and returns its stamp. Raises `OSError`."""
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_bytes(encode(memory))
    found = stamp(written)  # before it has its name: from then on others may write it
    os.replace(written, path)
    return found
