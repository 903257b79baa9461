"""A backend that does not speak TLS, behind a policy: it gets a ClientHello and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from tests.backends import CLIENT_HELLO, Backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop
from tests.servers import server

ALERT = 0x15
ANSWERS = {
    "a-bad-request": b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    "a-success": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "nothing": b"",
}


def records(data: bytes) -> list[int]:
    """The types of the TLS records that the bytes consist of, wholly."""
    types = []
    while data:
        length = int.from_bytes(data[3:5])
        assert data[1] == 3 and len(data) >= 5 + length, f"not TLS: {data[:40]!r}"
        types.append(data[0])
        data = data[5 + length :]
    return types


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_plaintext_server_on_the_tls_port_gets_a_client_hello_and_no_byte_of_http(gateway: Lasthop, answer: str) -> None:
    received: list[bytearray] = []
    ended = threading.Event()

    def record(connection: socket.socket) -> None:
        heard = bytearray(connection.recv(65536))
        received.append(heard)
        try:
            connection.sendall(ANSWERS[answer])
            if not ANSWERS[answer]:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                heard += more
        finally:
            ended.set()

    name = f"plaintext-{answer}"
    with server(None, record) as port:
        ca = docs.config_map(f"{name}-ca", CA.pem)
        gateway.load(f"{name}.yaml", ca, *docs.hop(name, port, docs.policy(name, "api.example", f"{name}-ca")))
        assert gateway.get(name, headers={"cookie": "secret=1"}) == (503, BACKEND_FAILURE)
        assert ended.wait(10)
    for heard in map(bytes, received):
        assert records(heard)[0] == CLIENT_HELLO
        assert set(records(heard)) <= {CLIENT_HELLO, ALERT}
        assert b"api.example" in heard, "the SNI is in the ClientHello"
        assert b"secret=1" not in heard


@pytest.mark.parametrize("banner", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"])
def test_a_server_that_speaks_first_is_not_believed(gateway: Lasthop, serve: Callable[..., Backend], banner: bytes) -> None:
    backend = serve(None, banner=banner)
    name = f"speaks-first-{len(banner)}"
    ca = docs.config_map(f"{name}-ca", CA.pem)
    gateway.load(f"{name}.yaml", ca, *docs.hop(name, backend.port, docs.policy(name, "api.example", f"{name}-ca")))
    assert gateway.get(name) == (503, BACKEND_FAILURE)
    assert backend.connections
    assert not backend.saw_plaintext
    assert backend.requests == []
