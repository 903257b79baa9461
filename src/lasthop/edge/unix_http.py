"""Sends one HTTP request to a running gateway, over its unix socket or to its admin address.

For commands: a library for this takes longer to import than the gateway takes to answer. Requests are HTTP/1.0, so that
answers come as they are and not in chunks.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of the process that listens, as the kernel knows them (SO_PEERCRED)."""


Endpoint = Path | tuple[str, int]
"""A unix socket, or host and port."""


class BadResponse(Exception):
    """The response is not HTTP, or ended too early."""


class ErrorResponse(Exception):
    """The answer is not 200; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.text = text


def get(path: Endpoint, target: str, timeout: float, method: str = "GET") -> tuple[int, bytes]:
    """Returns status and body. By a unix socket, of a process of this user or of root only; for root, of the owner of the
    folder that it is in. Raises OSError or `BadResponse`."""
    with _connected(path, timeout) as connection:
        connection.sendall(_request(target, method))
        return _response(b"".join(iter(lambda: connection.recv(1 << 16), b"")))


def stream(path: Endpoint, target: str, timeout: float = 30.0) -> Iterator[bytes]:
    """Yields the lines of an answer that goes on, as they come in. Raises OSError, `BadResponse` or `ErrorResponse`; also if
    nothing comes for so many seconds."""
    with _connected(path, timeout) as connection:
        connection.sendall(_request(target))
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(1 << 16)
            if not piece:
                raise BadResponse("it ended too early")
            received += piece
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        if status != 200:
            text = rest + b"".join(iter(lambda: connection.recv(1 << 16), b""))
            raise ErrorResponse(status, text.decode(errors="replace").strip())
        while True:
            *lines, rest = rest.split(b"\n")
            yield from lines
            piece = connection.recv(1 << 16)
            if not piece:
                return
            rest += piece


def _connected(path: Endpoint, timeout: float) -> socket.socket:
    if not isinstance(path, Path):
        return socket.create_connection(path, timeout)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(str(path))
        _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        believed = (0, os.geteuid()) if os.geteuid() else (0, path.parent.lstat().st_uid)
        if uid not in believed:
            raise PermissionError(errno.EACCES, f"the process that listens there is uid {uid}'s, not yours")
    except BaseException:
        connection.close()
        raise
    return connection


def _request(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


def _response(received: bytes) -> tuple[int, bytes]:
    """Reads a response from everything that was received before the connection closed, as it was asked to."""
    head, end, body = received.partition(b"\r\n\r\n")
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        if not end or len(body) < int(headers.get("content-length", 0)):
            raise ValueError("it ended too early")
    except (ValueError, IndexError) as error:
        raise BadResponse(f"no HTTP response: {error}") from error
    return status, body
