"""Clients and backends of connections and datagrams."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

from tests.proxy.certs import CA

TRUSTING = ssl.create_default_context(cadata=CA.pem)
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def spoken(connection: socket.socket) -> str:
    """Returns the response of a backend on an open connection; empty if the connection closes first."""
    connection.sendall(REQUEST)
    answer = b""
    while not answer.partition(b"\r\n\r\n")[2]:
        received = connection.recv(65536)
        if not received:
            return ""
        answer += received
    return answer.partition(b"\r\n\r\n")[2].decode()


def opened(port: int, name: str = "") -> socket.socket:
    """A connection, with TLS if it is for a name."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    return TRUSTING.wrap_socket(plain, server_hostname=name) if name else plain


def asked(port: int, name: str = "") -> str:
    """The answer to a client that connects; empty if the connection was closed."""
    try:
        with opened(port, name) as connection:
            return spoken(connection)
    except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return ""


def datagram(port: int, text: bytes = b"hello", within: float = 1.0) -> str:
    """Returns the response to a datagram from a new port; empty if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(within)
        client.connect(("127.0.0.1", port))
        client.send(text)
        try:
            return client.recv(1000).decode()
        except (TimeoutError, ConnectionError):
            return ""


@contextlib.contextmanager
def udp_backend(name: str) -> Iterator[int]:
    """Answers each datagram with its name; yields its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(0.1)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    _, client = listening.recvfrom(1000)
                    listening.sendto(name.encode(), client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            done.set()
            thread.join(5)
