"""Sends requests to the gateway as its clients do."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lasthop_judge.model import RouteType
from lasthop_judge.objects import CANARY_METHOD

TIMEOUT = 15.0
"""Seconds for a request, however slowly the gateway sends."""
LIMIT = 65536
"""Maximum bytes read from a response."""


class ClientResponse(NamedTuple):
    """The response that a client received."""

    status: int | None
    """The HTTP status; for gRPC 200 or 503; None: no answer."""
    backend: str
    """The key of the backend port that answered; empty: the gateway itself, or nothing."""
    text: str

    @property
    def shown(self) -> str:
        return self.text if self.status is None else f"{self.status} {self.text}".strip()


def accepts(address: tuple[str, int]) -> bool:
    """Returns whether the address accepts connections."""
    try:
        socket.create_connection(address, timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


def ask(via: RouteType, address: tuple[str, int], hostname: str, path: str) -> ClientResponse:
    """Sends one request on a new connection. `path` is for HTTP; for gRPC, the canary's path selects its method."""
    try:
        match via:
            case RouteType.GRPC:
                return _grpc(address, hostname, canary=path.startswith("/judge-"))
            case RouteType.WEBSOCKET if not path.startswith("/judge-"):
                return _websocket(address, hostname, path)
            case RouteType.TLS:
                return _stream(address, hostname, tls=True)
            case RouteType.TCP:
                return _stream(address, hostname, tls=False)
        return _http(address, hostname, path, tls=via is RouteType.HTTPS)
    except (OSError, http.client.HTTPException, ValueError, IndexError) as error:
        return ClientResponse(None, "", _printable(f"no answer: {error or type(error).__name__}"))


def _answer(status: int, body: bytes) -> ClientResponse:
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        backend = json.loads(body)["backend"]
        if isinstance(backend, str):
            return ClientResponse(status, backend, "from the backend")
    return ClientResponse(status, "", _printable(body[:120].decode("utf-8", "replace")))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in " ".join(text.split()))


def _context() -> ssl.SSLContext:
    """Returns a context without verification: the judge does not judge the gateway's own certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _connected(address: tuple[str, int], hostname: str, tls: bool) -> Iterator[socket.socket]:
    """Opens a connection that ends after TIMEOUT. The timeout of a socket would start again with each byte."""
    with contextlib.ExitStack() as opened:
        stream = opened.enter_context(socket.create_connection(address, timeout=TIMEOUT))
        if tls:
            stream = opened.enter_context(_context().wrap_socket(stream, server_hostname=hostname))
        ending = threading.Timer(TIMEOUT, _end, (stream,))
        ending.daemon = True
        ending.start()
        opened.callback(ending.cancel)
        yield stream


def _end(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(stream, socket.SHUT_RDWR)  # not SSLSocket.shutdown, because another thread is reading


def _http(address: tuple[str, int], hostname: str, path: str, tls: bool) -> ClientResponse:
    with _connected(address, hostname, tls) as stream, contextlib.closing(http.client.HTTPConnection(*address)) as connection:
        connection.sock = stream
        connection.request("GET", path, headers={"Host": hostname})
        response = connection.getresponse()
        return _answer(response.status, _read(response.read1))


def _websocket(address: tuple[str, int], hostname: str, path: str) -> ClientResponse:
    upgrade = (
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZQ==\r\n"
    )
    with _connected(address, hostname, False) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nhost: {hostname}\r\n{upgrade}\r\n".encode())
        head, _, body = _until(stream, b"\r\n\r\n").partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 101 and not body:
            body = stream.recv(65536)
        return _answer(200 if status == 101 else status, body)


def _stream(address: tuple[str, int], hostname: str, tls: bool) -> ClientResponse:
    """Sends an HTTP request over a connection that the gateway forwards as a stream."""
    with _connected(address, hostname, tls) as stream:
        stream.sendall(f"GET / HTTP/1.1\r\nhost: {hostname}\r\nconnection: close\r\n\r\n".encode())
        received = _until(stream, b"}")
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            return ClientResponse(None, "", "connection closed without an answer")
        return _answer(int(head.split()[1]), body)


def _until(stream: socket.socket, end: bytes) -> bytes:
    received = _read(stream.recv, end)
    if not received:
        raise ConnectionResetError("connection closed without an answer")
    return received


def _read(receive: Callable[[int], bytes], end: bytes | None = None) -> bytes:
    """Reads up to `end`, or everything. A gateway that never stops sending costs LIMIT bytes."""
    received = b""
    while (end is None or end not in received) and len(received) < LIMIT:
        if not (data := receive(LIMIT)):
            break
        received += data
    return received


def _grpc(address: tuple[str, int], hostname: str, canary: bool) -> ClientResponse:
    import grpc

    method = f"/{CANARY_METHOD if canary else 'judge.Case'}/Ask"
    options = [("grpc.default_authority", hostname), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"{address[0]}:{address[1]}", options=options) as channel:
        call: Callable[..., bytes] = channel.unary_unary(method)
        try:
            return _answer(200, call(b"", timeout=TIMEOUT))
        except grpc.RpcError as error:
            code = error.code()
            return ClientResponse(503, "", f"gRPC {code.name}: {error.details()}"[:160])
