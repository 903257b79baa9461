"""Sends one HTTP request to a running gateway, over its unix socket or to its admin address.

Commands use it, because importing an HTTP library takes longer than the gateway's response. Requests are HTTP/1.0, so that
responses are not chunked.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of the listening process, from the kernel (SO_PEERCRED)."""


Endpoint = Path | tuple[str, int]
"""A unix socket, or host and port."""


class BadResponse(Exception):
    """The response is not HTTP, or ended early."""


class ErrorResponse(Exception):
    """The status is not 200; the text is the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.text = text


def get(path: Endpoint, target: str, timeout: float, method: str = "GET", most: int | None = None) -> tuple[int, bytes]:
    """Returns status and body. A unix socket must belong to a process of this user or of root; for root, of root or of the
    owner of the folder. With `most`, a limit in bytes, the response must also end within the timeout, because another user's
    process may send it. Raises OSError or `BadResponse`."""
    with _connected(path, timeout) as connection:
        connection.sendall(_request(target, method))
        received, deadline = bytearray(), time.monotonic() + timeout
        while piece := connection.recv(1 << 16):
            received += piece
            if most is not None and (len(received) > most or time.monotonic() > deadline):
                raise BadResponse("the response does not end")
        return _response(bytes(received))


def stream(path: Endpoint, target: str, timeout: float = 30.0) -> Iterator[bytes]:
    """Yields the lines of a continuous response as they arrive. Raises `BadResponse`, `ErrorResponse` or OSError, for example
    after `timeout` seconds without data."""
    with _connected(path, timeout) as connection:
        connection.sendall(_request(target))
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(1 << 16)
            if not piece:
                raise BadResponse("the response ended early")
            received += piece
        head, _, remaining = received.partition(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
        if status != 200:
            text = remaining + b"".join(iter(lambda: connection.recv(1 << 16), b""))
            raise ErrorResponse(status, text.decode(errors="replace").strip())
        while True:
            *lines, remaining = remaining.split(b"\n")
            yield from lines
            piece = connection.recv(1 << 16)
            if not piece:
                return
            remaining += piece


def _connected(path: Endpoint, timeout: float) -> socket.socket:
    if not isinstance(path, Path):
        return socket.create_connection(path, timeout)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(str(path))
        _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        trusted = (0, os.geteuid()) if os.geteuid() else (0, path.parent.lstat().st_uid)
        if uid not in trusted:
            raise PermissionError(errno.EACCES, f"the listening process belongs to uid {uid}, not to you")
    except BaseException:
        connection.close()
        raise
    return connection


def _request(target: str, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


def _response(received: bytes) -> tuple[int, bytes]:
    """Parses a response from all bytes received until the connection closed."""
    head, end, body = received.partition(b"\r\n\r\n")
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        if not end or len(body) < int(headers.get("content-length", 0)):
            raise ValueError("the response ended early")
    except (ValueError, IndexError) as error:
        raise BadResponse(f"invalid HTTP response: {error}") from error
    return status, body
