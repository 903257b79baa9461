"""Runs faulty backends on threads: asyncio's TLS closes before its alert is sent, real servers do not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

from tests.backends import PATIENCE

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"

Handler = Callable[[socket.socket], None]


def answer(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(OK)


def bad_request(connection: socket.socket) -> None:
    """The response of a plaintext HTTP server to a ClientHello."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


class Patient:
    """Responds on demand, and records whether it received a request."""

    def __init__(self) -> None:
        self.asked, self.told = threading.Event(), threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.recv(65536)
        self.asked.set()
        self.told.wait(PATIENCE)
        with contextlib.suppress(OSError):
            connection.sendall(OK)


def say_nothing(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def read_and_hang_up(connection: socket.socket) -> None:
    connection.recv(65536)


def hang_up(connection: socket.socket) -> None:
    """Closes without reading: unread data turns the close into a reset."""


@contextlib.contextmanager
def server(context: ssl.SSLContext | None, handler: Handler = answer) -> Iterator[int]:
    """Serve on a free port until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, context, handler), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def _serve(listening: socket.socket, context: ssl.SSLContext | None, handler: Handler) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_one, args=(connection, context, handler), daemon=True).start()


def _one(connection: socket.socket, context: ssl.SSLContext | None, handler: Handler) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(10)
        if context is None:
            handler(connection)
        else:
            with context.wrap_socket(connection, server_side=True) as tls:
                handler(tls)
