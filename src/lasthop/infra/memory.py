"""Saves across restarts how each backend was verified and the record of changes, so that a policy which is deleted while
Lasthop is stopped is noticed too. Losing it loses only that."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.outputs.audit.changes import Change, share
from lasthop.verification_memory import Port, PortMemory

FILE: Final = "verification.json"
LARGEST: Final = 64 << 20
"""Bytes of a memory that is read."""
SHARE: Final = 1000
"""How many times as long as encoding took is waited at least until the next time: it is written whole, so with thousands of
ports not as often, or an edit would cost more the more of them there are ..."""
LONGEST_PAUSE: Final = 30.0
"""... but after these seconds all the same."""


class Memory(msgspec.Struct, frozen=True):
    ports: Mapping[Port, PortMemory] = {}
    changes: tuple[Change, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    ports: tuple[tuple[Key, int, PortMemory], ...] = ()
    changes: tuple[Change, ...] = ()


def pause(interval: float, took: float) -> float:
    """Returns the seconds until the next write, after one that took so long."""
    return max(interval, min(SHARE * took, LONGEST_PAUSE))


class Encoder:
    """Encodes one memory again and again, and only those ports anew that have changed since the last time."""

    def __init__(self) -> None:
        self._known: dict[Port, tuple[PortMemory, msgspec.Raw]] = {}

    def __call__(self, memory: Memory) -> bytes:
        before, self._known = self._known, {}
        for port, known in memory.ports.items():
            one = before.get(port)
            if one is None or one[0] is not known:
                one = known, msgspec.Raw(msgspec.json.encode((*port, known)))
            self._known[port] = one
        return msgspec.json.encode({"ports": [raw for _, raw in self._known.values()], "changes": memory.changes})


def decode(content: bytes) -> Memory:
    """Returns an empty memory if the content is not one."""
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Memory()
    return Memory({Port(backend, port): known for backend, port, known in stored.ports}, stored.changes)


def pack(memory: Memory, ports: int, encode: Encoder) -> bytes:
    """Returns it compressed, with at most so many ports; where there are more, each namespace keeps its share."""
    kept = memory.ports if len(memory.ports) <= ports else _shares(memory.ports, ports)
    return gzip.compress(encode(Memory(kept, memory.changes)), compresslevel=1, mtime=0)


def _shares(known: Mapping[Port, PortMemory], ports: int) -> Mapping[Port, PortMemory]:
    each, taken = share(Counter(port.backend.namespace for port in known), ports), Counter[str]()
    kept: dict[Port, PortMemory] = {}
    for port in known:
        taken[port.backend.namespace] += 1
        if taken[port.backend.namespace] <= each:
            kept[port] = known[port]
    return kept


def unpack(content: bytes) -> Memory:
    """Returns an empty memory if the content is not one, or is larger than any that was packed."""
    try:
        return decode(zlib.decompressobj(wbits=31).decompress(content, LARGEST))
    except zlib.error:
        return Memory()


def load(path: Path) -> Memory:
    """Returns an empty memory if the file does not exist or cannot be read."""
    try:
        return decode(path.read_bytes())
    except OSError:
        return Memory()


def save(path: Path, memory: Memory, encode: Encoder) -> None:
    """Writes the whole file or nothing. Raises `OSError`."""
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_bytes(encode(memory))
    os.replace(written, path)
