"""Runs a TLS backend in a process of its own. Each response contains the SNI, the port and the connection of its request. It
closes the connection after a request for /close, so that the next request needs a handshake.

Run as `python -m bench.backend CERTIFICATE KEY ADDRESS`; prints its two ports and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
from typing import Any

BACKLOG = 1024


def context(certificate: str, key: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    made.set_alpn_protocols(["http/1.1"])
    made.sni_callback = lambda connection, name, _: setattr(connection, "seen", name)
    return made


class Echo(asyncio.Protocol):
    _numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        seen: Any = getattr(transport.get_extra_info("ssl_object"), "seen", None)
        port = transport.get_extra_info("sockname")[1]
        body = f"{seen} {port} {next(self._numbers)}".encode()
        self._transport = transport
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        self._last_answer = self._answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        *requests, self._unread = (self._unread + data).split(b"\r\n\r\n")
        if any(request.startswith(b"GET /close") for request in requests):
            self._transport.write(self._last_answer)
            self._transport.close()
            return
        self._transport.write(self._answer * len(requests))


async def main(certificate: str, key: str, address: str) -> None:
    loop = asyncio.get_running_loop()
    tls = context(certificate, key)
    servers = [await loop.create_server(Echo, address, 0, ssl=tls, backlog=BACKLOG) for _ in range(2)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
