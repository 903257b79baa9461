"""The judge's client against gateways that misbehave."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import pytest

from lasthop_judge import client
from lasthop_judge.model import RouteType
from tests.servers import Handler, server

ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"


def sends(*parts: bytes, times: int = 1, pause: float = 0) -> Handler:
    def handle(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.recv(65536)
            for part in (*parts[:-1], *(parts[-1:] * times)):
                connection.sendall(part)
                time.sleep(pause)

    return handle


HOSTILE = {
    "nothing": sends(),
    "garbage": sends(b"\x00\xff\x1b[31m garbage\r\n\r\n}"),
    "a status that is no number": sends(b"HTTP/1.1 abc OK\r\n\r\n{}"),
    "a line without words": sends(b"\r\n\r\n}"),
    "control characters": sends(b"HTTP/1.1 404 No\r\ncontent-length: 9\r\n\r\n\x1b[31m\x07\x00}}"),
    "JSON of another shape": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"),
    "a backend of another type": sends(b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"backend": null}'),
    "JSON of great depth": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 50000\r\n\r\n" + b"[" * 50_000),
    "a body that ends early": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"),
    "a chunk of impossible length": sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n"),
    "a body without end": sends(ENDLESS, b"x" * 65536, times=4000),
    "a header without end": sends(b"HTTP/1.1 200 OK\r\n", b"a: " + b"x" * 60_000 + b"\r\n", times=4000),
    "status lines without end": sends(b"HTTP/1.1 100 Continue\r\n\r\n", times=1_000_000),
    "a status line, byte by byte": sends(b"H", times=1000, pause=0.05),
    "headers, one by one": sends(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", times=1000, pause=0.05),
    "a body, byte by byte": sends(ENDLESS, b"x", times=1000, pause=0.05),
}
ROUTES = [via for via in RouteType if via is not RouteType.UDP]


@pytest.mark.parametrize("via", ROUTES, ids=lambda via: via.name)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_gateway_gets_a_printable_line_in_time_and_no_exception(
    monkeypatch: pytest.MonkeyPatch, name: str, via: RouteType
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.5)
    begun = time.monotonic()
    with server(None, HOSTILE[name]) as port:
        answer = client.ask(via, ("127.0.0.1", port), "x.example", "/backend/https")
        took = time.monotonic() - begun
    assert took < 5  # on a busy machine
    assert answer.backend == "" and answer.shown.isprintable() and len(answer.shown) < 400
