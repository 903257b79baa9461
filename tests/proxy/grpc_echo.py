"""Provides a real gRPC server that echoes its request, with or without TLS, and calls through a gateway."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc

from tests.certificates import Certificate
from tests.proxy import documents as docs
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop


class Server(NamedTuple):
    port: int
    calls: list[dict[str, Any]]


def _joined(metadata: Iterable[tuple[str, Any]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in metadata:
        headers[name] = f"{headers[name]},{value}" if name in headers else str(value)
    return headers


class _Echo(grpc.GenericRpcHandler):
    def __init__(self, name: str, calls: list[dict[str, Any]]) -> None:
        self._name = name
        self._calls = calls

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        def answer(asked: bytes, context: grpc.ServicerContext) -> bytes:
            said = {"name": self._name, "method": details.method, "metadata": _joined(context.invocation_metadata())}
            self._calls.append(said)
            context.send_initial_metadata((("x-from", self._name),))
            return json.dumps(said).encode()

        def stream(asked: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            for message in asked:
                yield b"again " + message

        if details.method.endswith("/Stream"):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def server(name: str = "", certificate: Certificate | None = None) -> Iterator[Server]:
    """With a certificate: TLS only, and (as gRPC has it) only with ALPN h2."""
    calls: list[dict[str, Any]] = []
    running = grpc.server(ThreadPoolExecutor(2), handlers=[_Echo(name, calls)])
    if certificate:
        pair = (certificate.key_pem.encode(), certificate.pem.encode())
        port = running.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    else:
        port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        yield Server(port, calls)
    finally:
        running.stop(0).wait()


class Said(NamedTuple):
    code: grpc.StatusCode
    details: str
    answer: dict[str, Any]
    metadata: dict[str, Any]


@contextlib.contextmanager
def channel(
    gateway: Lasthop, host: str, *, port: int = 0, tls: grpc.ChannelCredentials | None = None
) -> Iterator[grpc.Channel]:
    where = f"127.0.0.1:{port or gateway.port}"
    options = [("grpc.default_authority", host), ("grpc.ssl_target_name_override", host), ("grpc.enable_retries", 0)]
    opened = grpc.secure_channel(where, tls, options) if tls else grpc.insecure_channel(where, options)
    with opened:
        yield opened


def call(
    gateway: Lasthop, host: str, method: str = "/echo.Echo/Say", *, headers: dict[str, str] | None = None, **to: Any
) -> Said:
    """Makes one call on a new connection."""
    with channel(gateway, host, **to) as opened:
        asked: grpc.UnaryUnaryMultiCallable[bytes, bytes] = opened.unary_unary(method)
        metadata = tuple((headers or {}).items())
        try:
            answer, done = asked.with_call(b"", timeout=10, metadata=metadata)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return Said(error.code(), error.details() or "", {}, dict(error.initial_metadata() or ()))
        return Said(grpc.StatusCode.OK, "", json.loads(answer), dict(done.initial_metadata()))


def rule(
    *backends: Document, method: dict[str, str] | None = None, headers: dict[str, str] | None = None, **more: Any
) -> Document:
    match: Document = {"method": method} if method else {}
    if headers:
        match["headers"] = [{"name": name, "value": value} for name, value in headers.items()]
    return {"backendRefs": list(backends), **({"matches": [match]} if match else {}), **more}


def route(path: str, *rules: Document, **spec: Any) -> Document:
    """For the host NAME.test."""
    document = docs.route(path)
    document["kind"] = "GRPCRoute"
    document["spec"] |= {"rules": list(rules), **spec}
    return document
