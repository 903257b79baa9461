"""Encodes and decodes the stored memory: the verification of each hop, and the record of changes.

The loss of a memory affects only reports, and `lost` detects it.
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
"""Limit of CA and pin hashes in a packed memory: some 100 bytes each."""
LARGEST: Final = 64 << 20
"""Limit of decompressed bytes."""
FAULTS: Final = 3
"""Limit of faults that a message names."""


class Memory(msgspec.Struct, frozen=True):
    ports: Mapping[Port, PortMemory] = {}
    record: Record = Record()
    complete: bool = True
    """Whether `ports` contains all ports."""


class Damaged(msgspec.Struct, frozen=True):
    """A stored memory that cannot be decoded."""

    why: str
    """A clause such as `cannot be decoded: ...`."""


class _StoredPort(msgspec.Struct, frozen=True, array_like=True):
    backend: Key
    number: int
    memory: PortMemory
    bases: tuple[str, ...] = ()
    """The basis of each verification in `memory`, as a key of `_Stored.bases`; empty without one."""


class _Stored(msgspec.Struct, frozen=True):
    ports: tuple[_StoredPort, ...]
    record: Record
    complete: bool
    bases: dict[str, Basis]
    """Without duplicates, because thousands of ports may share the CAs of one bundle."""


class _Encoded(NamedTuple):
    memory: PortMemory
    bare: bool
    """Its bases are omitted."""
    port: msgspec.Raw
    bases: dict[str, Basis]


class Encoder:
    """Encodes a memory repeatedly, and caches the ports that have not changed."""

    def __init__(self) -> None:
        self._cache: dict[Port, _Encoded] = {}

    def __call__(self, memory: Memory, bare: Collection[str] = ()) -> bytes:
        """Encodes a memory. `bare` contains the namespaces whose bases are omitted."""
        before, self._cache = self._cache, {}
        bases: dict[str, Basis] = {}
        for port, port_memory in memory.ports.items():
            encoded, is_bare = before.get(port), port.backend.namespace in bare
            if encoded is None or encoded.memory is not port_memory or encoded.bare != is_bare:
                encoded = _encoded(port, port_memory, bare=is_bare)
            self._cache[port] = encoded
            bases |= encoded.bases
        ports = [encoded.port for encoded in self._cache.values()]
        document = {"ports": ports, "record": memory.record, "complete": memory.complete, "bases": bases}
        return msgspec.json.encode(document)


def _encoded(port: Port, memory: PortMemory, *, bare: bool) -> _Encoded:
    of_port = [None if bare else verification.basis for verification in _verifications(memory)]
    keys = [
        "" if basis is None else hashlib.blake2b(msgspec.json.encode(basis), digest_size=8).hexdigest() for basis in of_port
    ]
    without_bases = _with_bases(memory, [None] * len(of_port))
    bases = {key: basis for key, basis in zip(keys, of_port, strict=True) if basis is not None}
    return _Encoded(memory, bare, msgspec.Raw(msgspec.json.encode(_StoredPort(*port, without_bases, tuple(keys)))), bases)


def _verifications(memory: PortMemory) -> list[HopVerification]:
    return [*(hops.now for hops in memory.hops), *memory.held]


def _with_bases(memory: PortMemory, bases: Sequence[Basis | None]) -> PortMemory:
    pairs = zip(_verifications(memory), bases, strict=True)
    replaced = [msgspec.structs.replace(verification, basis=basis) for verification, basis in pairs]
    hops = tuple(HopsMemory(now, old.gateways) for now, old in zip(replaced, memory.hops, strict=False))
    return PortMemory(hops, tuple(replaced[len(hops) :]))


def decode(content: bytes) -> Memory | Damaged:
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Damaged(f"cannot be decoded: {error}")
    ports = {}
    for port in stored.ports:
        count = len(_verifications(port.memory))
        keys = port.bases if len(port.bases) == count else ("",) * count
        ports[Port(port.backend, port.number)] = _with_bases(port.memory, [stored.bases.get(key) for key in keys])
    return Memory(ports, stored.record, stored.complete)


def lost(stored: Memory | Damaged | None, revision: int) -> str:
    """Describes the loss of a stored record as a clause; empty if it is complete and its chain is intact. `revision` is the
    revision of the last read or write (0: never)."""
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
    """Compresses a memory with at most `ports` ports and `MAX_HASHES`. Above these limits, each namespace keeps its share."""
    complete = len(memory.ports) <= ports
    kept = memory.ports if complete else _shares(memory.ports, ports)
    packed = Memory(kept, memory.record, complete)
    return gzip.compress(encode(packed, _namespaces_over_share(kept, MAX_HASHES)), compresslevel=1, mtime=0)


def _namespaces_over_share(memories: Mapping[Port, PortMemory], hashes: int) -> Collection[str]:
    """Returns the namespaces whose CAs and pins are not stored because there are too many: hashes do not compress."""
    counts = Counter[str]()
    seen: set[tuple[str, str]] = set()
    for port, memory in memories.items():
        for verification in _verifications(memory):
            trust = (port.backend.namespace, verification.digest)
            if verification.basis is not None and trust not in seen:
                seen.add(trust)
                counts[port.backend.namespace] += len(verification.basis.cas) + len(verification.basis.pins)
    if counts.total() <= hashes:
        return ()
    per_namespace = share(counts, hashes)
    return {namespace for namespace, count in counts.items() if count > per_namespace}


def _shares(memories: Mapping[Port, PortMemory], ports: int) -> Mapping[Port, PortMemory]:
    per_namespace, taken = share(Counter(port.backend.namespace for port in memories), ports), Counter[str]()
    kept: dict[Port, PortMemory] = {}
    for port in memories:
        taken[port.backend.namespace] += 1
        if taken[port.backend.namespace] <= per_namespace:
            kept[port] = memories[port]
    return kept


def unpack(content: bytes) -> Memory | Damaged:
    try:
        return decode(zlib.decompressobj(wbits=31).decompress(content, LARGEST))
    except zlib.error as error:
        return Damaged(f"cannot be decompressed: {error}")
