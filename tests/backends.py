"""Backends that record their connections: one server on threads, speaking TLS with HTTP/1.1, HTTP/2 and WebSocket, or
plaintext."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

CLIENT_HELLO = 0x16
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONGEST = 30
PATIENCE = 60.0
"""Seconds to wait for what should happen at once. Generous, because benchmarks measure durations: a test on a busy machine
must not fail because of time."""


T = TypeVar("T")


@dataclasses.dataclass
class Connection:
    """Observations of one connection; the TLS fields are empty if the handshake failed."""

    first: bytes = b""
    """The first bytes on the wire."""
    sni: str | None = None
    alpn: str | None = None
    version: str | None = None
    cipher: str | None = None
    client: str | None = None
    """The common name of the client's certificate."""
    established: bool = False
    ended: bool = False
    heads: list[str] = dataclasses.field(default_factory=list)
    """Request line and headers of each HTTP/1.1 request; a line for each HTTP/2 request."""

    @property
    def plaintext(self) -> bool:
        return bool(self.first) and self.first[0] != CLIENT_HELLO


class Backend:
    """Answers 200 with its name.

    There are four kinds: TLS (with a context), plaintext (without), both on one port (`plaintext_too`), and one that sends a
    `banner` before the client sends anything. TLS has more options: `h2_only` closes a connection for which ALPN has not
    picked h2; `resets` resets each HTTP/2 request, as a gRPC server resets requests that are not gRPC calls; `client_or_400`
    answers 400 to clients without a certificate, as nginx does with `ssl_verify_client on`; `alert` is the TLS alert that
    answers each ClientHello. Over HTTP/1.1 responses may be delayed by `delay` seconds.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None = None,
        *,
        name: str = "backend",
        plaintext_too: bool = False,
        banner: bytes = b"",
        h2_only: bool = False,
        resets: bool = False,
        client_or_400: bool = False,
        alert: int | None = None,
        delay: float = 0,
        at: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.name = name
        self._delay, self._closing = delay, threading.Event()
        self.h2_only, self.resets, self.client_or_400, self.alert = h2_only, resets, client_or_400, alert
        self.connections: list[Connection] = []
        self.plaintext_too = plaintext_too
        self.banner = banner
        self._local = threading.local()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(at, backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self.context = context
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def context(self) -> ssl.SSLContext | None:
        """For connections to come; those that are open keep theirs."""
        return self._context

    @context.setter
    def context(self, context: ssl.SSLContext | None) -> None:
        if context is not None:
            context.sni_callback = lambda _socket, name, _context: self._hello(name)
        self._context = context

    def _hello(self, name: str | None) -> int | None:
        self._local.seen.sni = name
        return self.alert

    @property
    def last(self) -> Connection:
        """Returns the last established connection."""
        established = [connection for connection in self.connections if connection.established]
        assert established, "nobody came"
        return established[-1]

    @property
    def requests(self) -> list[str]:
        return [head for connection in self.connections for head in connection.heads]

    @property
    def saw_plaintext(self) -> bool:
        return any(connection.plaintext for connection in self.connections)

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop()
        self._thread.join(5)

    def drop(self) -> None:
        """Ends the connections that are open."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        seen = Connection()
        self.connections.append(seen)
        self._open.add(accepted)
        try:
            with accepted, contextlib.suppress(OSError, ValueError):
                accepted.settimeout(LONGEST)
                if self.banner:
                    accepted.sendall(self.banner)
                seen.first = accepted.recv(5, socket.MSG_PEEK)
                if self.context is None or (self.plaintext_too and seen.plaintext):
                    if seen.plaintext:
                        seen.established = True
                        (self._http2 if seen.first == H2_PREFACE[:5] else self._http1)(accepted, seen)
                    else:
                        accepted.recv(65536)
                        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                else:
                    self._tls(accepted, self.context, seen)
        finally:
            seen.ended = True
            self._open.discard(accepted)

    def _tls(self, accepted: socket.socket, context: ssl.SSLContext, seen: Connection) -> None:
        self._local.seen = seen
        with context.wrap_socket(accepted, server_side=True) as tls:
            self._open.add(tls)
            try:
                cipher = tls.cipher()
                seen.alpn, seen.version, seen.cipher = tls.selected_alpn_protocol(), tls.version(), cipher and cipher[0]
                subject: Any = (tls.getpeercert() or {}).get("subject", ())
                seen.client = next((value for rdn in subject for key, value in rdn if key == "commonName"), None)
                seen.established = True
                if seen.alpn == "h2":
                    self._http2(tls, seen)
                elif not self.h2_only:
                    self._http1(tls, seen, 400 if self.client_or_400 and seen.client is None else 200)
            finally:
                self._open.discard(tls)

    def _http1(self, stream: socket.socket, seen: Connection, status: int = 200) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = stream.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            seen.heads.append(head.decode("latin-1"))
            if b"upgrade: websocket" in head.lower():
                stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
                while data := stream.recv(65536):
                    stream.sendall(data)
                return
            self._closing.wait(self._delay)
            body = self.name.encode()
            stream.sendall(b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    def _http2(self, stream: socket.socket, seen: Connection) -> None:
        """As little of RFC 9113 as answers a request without a body."""
        settings, headers, data, reset, ping, goaway = 4, 1, 0, 3, 6, 7
        end_stream, ack, end_headers = 1, 1, 4
        with stream.makefile("rb") as reading:
            reading.read(len(H2_PREFACE))
            stream.sendall(_frame(settings, 0, 0, b""))
            while head := reading.read(9):
                kind, flags, number = head[3], head[4], int.from_bytes(head[5:9])
                payload = reading.read(int.from_bytes(head[:3]))
                if kind in (settings, ping) and not flags & ack:
                    stream.sendall(_frame(kind, ack, 0, payload if kind == ping else b""))
                elif kind == headers:
                    seen.heads.append(f"HTTP/2 stream {number}")
                    if self.resets:
                        internal_error = (2).to_bytes(4)
                        stream.sendall(_frame(reset, 0, number, internal_error))
                        continue
                    status_200 = b"\x88"
                    stream.sendall(
                        _frame(headers, end_headers, number, status_200) + _frame(data, end_stream, number, self.name.encode())
                    )
                elif kind == goaway:
                    return


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


@contextlib.contextmanager
def backend(context: ssl.SSLContext | None = None, *, name: str = "backend", **settings: object) -> Iterator[Backend]:
    running = Backend(context, name=name, **settings)  # type: ignore[arg-type]
    try:
        yield running
    finally:
        running.close()


def until(condition: Callable[[], T | None], what: str = "") -> T:
    """Polls until the condition returns a true value, and returns that value. A failing assertion or connection in it means
    "not yet". Pauses grow, because polling takes CPU from the awaited process."""
    deadline, pause = time.monotonic() + PATIENCE, 0.005
    while True:
        last = time.monotonic() >= deadline
        try:
            if result := condition():
                return result
            assert not last, f"not within {PATIENCE} s{': ' + what if what else ''}"
        except (AssertionError, OSError):
            if last:
                raise
        time.sleep(pause)
        pause = min(pause * 1.3, 0.04)
