"""What is remembered as bytes: how each hop was verified, and the record of changes.

Losing them loses only reports, and is noticed: `lost` compares what is stored with what was.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.memory.record import Record, share
from lasthop.engine.memory.verification import HopsMemory, Port, PortMemory
from lasthop.engine.plan.verdict import Basis, HopVerification

MAX_HASHES: Final = 2000
"""Of CAs and pins, that a packed memory holds: some 100 bytes each."""
LARGEST: Final = 64 << 20
"""Bytes of a memory that is read."""
FAULTS: Final = 3
"""Faults of a chain that are named."""


class Memory(msgspec.Struct, frozen=True):
    ports: Mapping[Port, PortMemory] = {}
    record: Record = Record()
    complete: bool = True
    """Whether these are all ports."""


class Damaged(msgspec.Struct, frozen=True):
    """Something is stored that cannot be read."""

    why: str
    """Continues a sentence, as `is no JSON`."""


class _StoredPort(msgspec.Struct, frozen=True, array_like=True):
    backend: Key
    number: int
    known: PortMemory
    bases: tuple[str, ...] = ()
    """Those of each of `known`, by their keys in `_Stored.bases`; empty: none."""


class _Stored(msgspec.Struct, frozen=True):
    ports: tuple[_StoredPort, ...]
    record: Record
    complete: bool
    bases: dict[str, Basis]
    """Each once: thousands of ports may share the CAs of one bundle."""


class _Encoded(NamedTuple):
    known: PortMemory
    bare: bool
    """Its bases are left out."""
    port: msgspec.Raw
    bases: dict[str, Basis]


class Encoder:
    """Encodes one memory again and again, and only those ports anew that have changed since the last time."""

    def __init__(self) -> None:
        self._known: dict[Port, _Encoded] = {}

    def __call__(self, memory: Memory, bare: Collection[str] = ()) -> bytes:
        """`bare`: namespaces whose bases are left out."""
        before, self._known = self._known, {}
        bases: dict[str, Basis] = {}
        for port, known in memory.ports.items():
            one, is_bare = before.get(port), port.backend.namespace in bare
            if one is None or one.known is not known or one.bare != is_bare:
                one = _encoded(port, known, bare=is_bare)
            self._known[port] = one
            bases |= one.bases
        ports = [each.port for each in self._known.values()]
        document = {"ports": ports, "record": memory.record, "complete": memory.complete, "bases": bases}
        return msgspec.json.encode(document)


def _encoded(port: Port, known: PortMemory, *, bare: bool) -> _Encoded:
    found = [None if bare else each.basis for each in _each(known)]
    keys = ["" if basis is None else hashlib.blake2b(msgspec.json.encode(basis), digest_size=8).hexdigest() for basis in found]
    without = _with_bases(known, [None] * len(found))
    bases = {key: basis for key, basis in zip(keys, found, strict=True) if basis is not None}
    return _Encoded(known, bare, msgspec.Raw(msgspec.json.encode(_StoredPort(*port, without, tuple(keys)))), bases)


def _each(known: PortMemory) -> list[HopVerification]:
    return [*(each.now for each in known.hops), *known.held]


def _with_bases(known: PortMemory, bases: Sequence[Basis | None]) -> PortMemory:
    found = [msgspec.structs.replace(each, basis=basis) for each, basis in zip(_each(known), bases, strict=True)]
    hops = tuple(HopsMemory(now, each.gateways) for now, each in zip(found, known.hops, strict=False))
    return PortMemory(hops, tuple(found[len(hops) :]))


def decode(content: bytes) -> Memory | Damaged:
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Damaged(f"cannot be decoded: {error}")
    ports = {}
    for each in stored.ports:
        count = len(_each(each.known))
        keys = each.bases if len(each.bases) == count else ("",) * count
        ports[Port(each.backend, each.number)] = _with_bases(each.known, [stored.bases.get(key) for key in keys])
    return Memory(ports, stored.record, stored.complete)


def lost(stored: Memory | Damaged | None, revision: int) -> str:
    """Returns what has happened to a record that was at this revision when it was last read or written (0: never), as a
    clause; empty if it is there and its chain is not broken. `stored` is what there is of it now."""
    match stored:
        case Damaged():
            return f"was damaged: it {stored.why}"
        case None:
            return "was deleted" if revision else ""
    if stored.record.revision < revision:
        return f"was replaced by an older copy (revision {stored.record.revision} after {revision})"
    faults = stored.record.faults()
    return f"was edited: {'; '.join(faults[:FAULTS])}" if faults else ""


def pack(memory: Memory, ports: int, encode: Encoder) -> bytes:
    """Returns it compressed, with at most so many ports and `MAX_HASHES`; where there are more, each namespace keeps its
    share."""
    complete = len(memory.ports) <= ports
    kept = memory.ports if complete else _shares(memory.ports, ports)
    packed = Memory(kept, memory.record, complete)
    return gzip.compress(encode(packed, _loud(kept, MAX_HASHES)), compresslevel=1, mtime=0)


def _loud(known: Mapping[Port, PortMemory], hashes: int) -> Collection[str]:
    """Returns the namespaces that have too many CAs and pins for all to be kept: hashes cannot be compressed."""
    counts = Counter[str]()
    seen: set[tuple[str, str]] = set()
    for port, each in known.items():
        for found in _each(each):
            place = (port.backend.namespace, found.digest)
            if found.basis is not None and place not in seen:
                seen.add(place)
                counts[port.backend.namespace] += len(found.basis.cas) + len(found.basis.pins)
    if counts.total() <= hashes:
        return ()
    most = share(counts, hashes)
    return {namespace for namespace, count in counts.items() if count > most}


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
