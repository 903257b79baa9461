"""Sends requests over one kept-alive connection until a response shows the expected change."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections import Counter
from collections.abc import Callable

PAUSE = 0.0005
"""Seconds between an answer and the next request, so that the probe does not eat the core that it measures on."""


class NotEffective(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Answer:
    at: float
    status: int
    sni: str = ""
    port: int = 0
    connection: int = 0
    """Numbered by the backend: a cluster that has been replaced opens a new one."""


class Probe:
    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self.seen: Counter[int] = Counter()
        """Answers by status."""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, host: str, path: str = "/") -> Answer:
        """Raises OSError if nothing listens, or no longer."""
        try:
            answer = self._ask(host, path)
        except OSError:
            self.close()
            raise
        self.seen[answer.status] += 1
        return answer

    def until(self, host: str, shown: Callable[[Answer], bool], path: str = "/", limit: float = 20.0) -> Answer:
        """The first answer for which `shown` holds."""
        end = time.perf_counter() + limit
        while not shown(answer := self.ask(host, path)):
            if answer.at > end:
                raise NotEffective(f"{host}{path}: not effective after {limit:.0f} s; the last answer: {answer}")
            time.sleep(PAUSE)
        return answer

    def _ask(self, host: str, path: str) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=20)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive(self._socket)
        head, _, body = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields.get(b"content-length", 0)):
            body += self._receive(self._socket)
        at, status = time.perf_counter(), int(head[9:12])
        if fields.get(b"connection") == b"close":
            self.close()
        if status != 200:
            return Answer(at, status)
        sni, port, connection = body.decode().split()
        return Answer(at, status, sni, int(port), int(connection))

    @staticmethod
    def _receive(connection: socket.socket) -> bytes:
        if data := connection.recv(65536):
            return data
        raise ConnectionResetError("the Gateway closed the connection")
