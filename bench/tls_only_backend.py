"""A TLS backend that reads the first bytes of every connection: it counts connections without TLS and never responds to them.

Run as `python -m bench.tls_only_backend CERTIFICATE KEY ADDRESS:PORT COUNTS`, where COUNTS is a port of the same address that
returns the counts so far, as JSON. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys

from bench.backend import context

HANDSHAKE = b"\x16\x03"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Counts:
    connections = requests = plaintext_bytes = 0
    sni = ""


class TLSOnlyBackend(asyncio.Protocol):
    def __init__(self, tls: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._in, self._out, server_side=True)
        self._first, self._open, self._unread = True, False, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._first and not data.startswith(HANDSHAKE[: len(data)]):
            Counts.plaintext_bytes += len(data)
            self._transport.abort()
            return
        self._first = False
        self._in.write(data)
        try:
            self._read()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._transport.abort()
            return
        if self._out.pending:
            self._transport.write(self._out.read())

    def _read(self) -> None:
        if not self._open:
            self._tls.do_handshake()
            self._open = True
            Counts.connections += 1
            Counts.sni = getattr(self._tls, "seen", None) or ""
        while data := self._tls.read(65536):
            *requests, self._unread = (self._unread + data).split(b"\r\n\r\n")
            Counts.requests += len(requests)
            self._tls.write(ANSWER * len(requests))


async def _tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    counts = {name: getattr(Counts, name) for name in ("connections", "requests", "plaintext_bytes", "sni")}
    writer.write(json.dumps(counts).encode())
    writer.close()


async def main(certificate: str, key: str, place: str, counts: str) -> None:
    loop = asyncio.get_running_loop()
    tls = context(certificate, key)
    address, _, port = place.rpartition(":")
    await loop.create_server(lambda: TLSOnlyBackend(tls), address, int(port), backlog=1024)
    await asyncio.start_server(_tell, address, int(counts))
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
