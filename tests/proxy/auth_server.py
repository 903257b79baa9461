"""Authorization servers over gRPC (Envoy's ext_authz), with or without TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.auth.v3 import external_auth_pb2 as auth
from envoy.service.auth.v3.external_auth_pb2_grpc import AuthorizationServicer, add_AuthorizationServicer_to_server
from envoy.type.v3 import http_status_pb2
from google.rpc import status_pb2

from tests.certificates import Certificate

PERMISSION_DENIED = 7


class Asked(NamedTuple):
    """The request as the server received it."""

    method: str
    path: str
    host: str
    headers: dict[str, str]
    body: str


class _Server(AuthorizationServicer):
    def __init__(self, asked: list[Asked]) -> None:
        self._asked = asked

    def Check(self, request: Any, context: Any) -> Any:
        http = request.attributes.request.http
        told = Asked(http.method, http.path, http.host, dict(http.headers), http.body)
        self._asked.append(told)
        if told.headers.get("x-token") == "good":
            return auth.CheckResponse(
                status=status_pb2.Status(), ok_response=auth.OkHttpResponse(headers=[_header("x-user", "anna")])
            )
        denied = auth.DeniedHttpResponse(
            status=http_status_pb2.HttpStatus(code=http_status_pb2.PaymentRequired),
            headers=[_header("x-why", "no token")],
            body="not without a token",
        )
        return auth.CheckResponse(status=status_pb2.Status(code=PERMISSION_DENIED), denied_response=denied)


def _header(key: str, value: str) -> Any:
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=key, value=value))


class AuthServer(NamedTuple):
    port: int
    asked: list[Asked]


@contextlib.contextmanager
def auth_server(certificate: Certificate) -> Iterator[AuthServer]:
    """Admits requests with `x-token: good`, as anna; answers 402 to all others."""
    asked: list[Asked] = []
    running = grpc.server(ThreadPoolExecutor(2))
    add_AuthorizationServicer_to_server(_Server(asked), running)
    pair = (certificate.key_pem.encode(), certificate.pem.encode())
    port = running.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    running.start()
    try:
        yield AuthServer(port, asked)
    finally:
        running.stop(0).wait()
