"""A minimal HTTP/2 client (RFC 9113, RFC 7541) that sends many requests over one connection."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import NamedTuple

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
STATIC_STATUS = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
DIGITS = {f"{n:05b}": str(n) for n in range(3)} | {f"{n + 22:06b}": str(n) for n in range(3, 10)}
"""RFC 7541's Huffman codes of the digits: more is not needed for a status."""


class Answer(NamedTuple):
    status: int
    body: str


def client_context() -> ssl.SSLContext:
    """Verifies nothing, because other tests verify the listener's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class H2:
    """One connection; `sni` None: in plaintext, with prior knowledge."""

    def __init__(self, port: int, sni: str | None = None) -> None:
        raw = socket.create_connection(("127.0.0.1", port), timeout=15)
        self._socket = client_context().wrap_socket(raw, server_hostname=sni) if sni else raw
        self._reading = self._socket.makefile("rb")
        self._next = 1
        # No table of header fields: then every status is written out, or is one of the seven that have a number.
        no_table = struct.pack(">HI", 1, 0)
        window = struct.pack(">I", 2**31 - 1 - 65535)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        self._socket.sendall(preface + _frame(SETTINGS, 0, 0, no_table) + _frame(WINDOW_UPDATE, 0, 0, window))

    def close(self) -> None:
        self._reading.close()
        self._socket.close()

    @property
    def certificate(self) -> bytes | None:
        """Returns the listener's certificate, in DER."""
        return self._socket.getpeercert(binary_form=True) if isinstance(self._socket, ssl.SSLSocket) else None

    def ask(self, host: str, path: str = "/") -> Answer:
        return self.ask_at_once((host, path))[0]

    def ask_at_once(self, *requests: tuple[str, str]) -> list[Answer]:
        """All of them before the first is answered."""
        numbers = []
        for host, path in requests:
            fields = {":method": "GET", ":scheme": "http", ":authority": host, ":path": path}
            block = b"".join(_literal(name, value) for name, value in fields.items())
            self._socket.sendall(_frame(HEADERS, END_STREAM | END_HEADERS, self._next, block))
            numbers.append(self._next)
            self._next += 2
        return self._answers(numbers)

    def _answers(self, numbers: list[int]) -> list[Answer]:
        statuses: dict[int, int] = {}
        bodies = {number: b"" for number in numbers}
        waiting = set(numbers)
        while waiting:
            kind, flags, number, payload = self._frame()
            if kind == HEADERS and number not in statuses:
                statuses[number] = _status(payload)
            elif kind == DATA:
                bodies[number] += payload
            elif kind == RST_STREAM:
                raise ConnectionResetError(f"stream {number} was reset: {int.from_bytes(payload)}")
            elif kind == GOAWAY:
                raise ConnectionResetError(f"the connection was closed: {payload!r}")
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self._socket.sendall(_frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                waiting.discard(number)
        return [Answer(statuses[number], bodies[number].decode()) for number in numbers]

    def _frame(self) -> tuple[int, int, int, bytes]:
        head = self._reading.read(9)
        if len(head) < 9:
            raise ConnectionResetError("the connection ended")
        payload = self._reading.read(int.from_bytes(head[:3]))
        return head[3], head[4], int.from_bytes(head[5:9]), payload


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _literal(name: str, value: str) -> bytes:
    """A field that is never indexed, without Huffman coding; texts are shorter than 127."""
    return b"\x10" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def _status(block: bytes) -> int:
    """The first field of an answer is always its status."""
    while block[0] & 0xE0 == 0x20:  # the table's size
        block = block[1:]
    if block[0] & 0x80:
        return STATIC_STATUS[block[0] & 0x7F]
    assert block[0] & 0x0F == 8, block
    text = block[2 : 2 + (block[1] & 0x7F)]
    if not block[1] & 0x80:
        return int(text)
    bits, digits = "".join(f"{byte:08b}" for byte in text), ""
    while len(digits) < 3:
        code = next(code for code in DIGITS if bits.startswith(code))
        digits, bits = digits + DIGITS[code], bits[len(code) :]
    return int(digits)
