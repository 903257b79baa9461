"""Serves the cluster's DNS: A records of Services, over UDP. Names outside cluster.local do not exist."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

TYPE_A, CLASS_IN, NXDOMAIN = 1, 1, 3
Lookup = Callable[[str, str], list[str] | None]  # (service, namespace) -> addresses; None: no such Service


def answer(query: bytes, lookup: Lookup) -> bytes:
    """Returns the reply to a query with one question; empty if the message is not a query."""
    try:
        identifier, flags, questions = struct.unpack_from("!HHH", query)
        if flags & 0x8000 or questions != 1:
            return b""
        name, end = _name(query, 12)
        kind, cls = struct.unpack_from("!HH", query, end)
    except (struct.error, IndexError):
        return b""
    addresses = _resolve(name, lookup)
    matching = addresses if addresses and (kind, cls) == (TYPE_A, CLASS_IN) else []  # AAAA: the name exists, no such record
    code = NXDOMAIN if addresses is None else 0
    header = struct.pack("!HHHHHH", identifier, 0x8400 | flags & 0x0100 | 0x0080 | code, 1, len(matching), 0, 0)
    records = b"".join(
        struct.pack("!HHHIH", 0xC00C, TYPE_A, CLASS_IN, 5, 4) + bytes(int(part) for part in address.split("."))
        for address in matching
    )
    return header + query[12 : end + 4] + records


def _name(query: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1


def _resolve(name: str, lookup: Lookup) -> list[str] | None:
    match name.removesuffix(".cluster.local").split("."):
        case [service, namespace, "svc"]:
            return lookup(service, namespace)
    return None


class Dns(asyncio.DatagramProtocol):
    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str | int, ...]) -> None:
        if reply := answer(data, self.lookup):
            self.transport.sendto(reply, address)
