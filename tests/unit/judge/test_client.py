"""The judge's client against gateways that misbehave."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from lasthop_judge import client
from lasthop_judge.model import RouteType
from tests.servers import Handler, server

ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"


def sends(*parts: bytes, times: int = 1) -> Handler:
    def handle(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.recv(65536)
            for part in (*parts[:-1], *(parts[-1:] * times)):
                connection.sendall(part)

    return handle


HOSTILE = {
    "nothing": sends(),
    "garbage": sends(b"\x00\xff\x1b[31m garbage\r\n\r\n}"),
    "a status that is no number": sends(b"HTTP/1.1 abc OK\r\n\r\n{}"),
    "a line without words": sends(b"\r\n\r\n}"),
    "control characters": sends(b"HTTP/1.1 404 No\r\ncontent-length: 9\r\n\r\n\x1b[31m\x07\x00}}"),
    "JSON of another shape": sends(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"),
    "a body without end": sends(ENDLESS, b"x" * 65536, times=4000),
}


@pytest.mark.parametrize("via", [RouteType.HTTP, RouteType.WEBSOCKET, RouteType.TCP, RouteType.GRPC])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_gateway_gets_a_printable_line_and_no_exception(name: str, via: RouteType) -> None:
    with server(None, HOSTILE[name]) as port:
        found = client.ask(via, ("127.0.0.1", port), "x.example", "/backend/https")
    assert found.backend == "" and found.shown.isprintable() and len(found.shown) < 400
