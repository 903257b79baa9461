"""Attacks by clients at the edge: paths and headers that gateway and backend parse differently, idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lasthop.edge.proxy.admin import request
from lasthop.edge.proxy.directory import folder_name
from tests.backends import until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.echo import Echo, echo, external_auth, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

SPELLINGS = ("//admin", "/%2fadmin", "/x/..%2fadmin", "/x%2f..%2fadmin", "/\\admin", "http://edge.test//admin", "/%5cadmin")


def raw(port: int, path: str, *headers: str, patience: float = 10) -> tuple[int, dict[str, str], str]:
    """(status, headers, body) of a request that is sent as it is written."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        lines = [f"GET {path} HTTP/1.1", "Host: edge.test", "Connection: close", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode()


@pytest.fixture(scope="module")
def backend() -> Iterator[Echo]:
    with echo("edge") as server:
        yield server


@pytest.fixture(scope="module")
def guard() -> Iterator[Echo]:
    """Refuses everybody."""
    with echo("guard") as server:
        server.plan = "403"
        yield server


def objects(backend: Echo, guard: Echo) -> list[docs.Document]:
    asks = external_auth("HTTP", "edge-guard")
    route = rules("edge", rule("/admin", asks, to=[to("edge")]), rule("/", to=[to("edge")]), host="edge.test")
    return [*service("edge", backend.port), docs.service("edge-guard"), *docs.endpoints("edge-guard", guard.port), route]


@pytest.fixture(scope="module")
def strict(gateway: Lasthop, backend: Echo, guard: Echo) -> Lasthop:
    """As it is without a profile."""
    gateway.load("edge.yaml", *objects(backend, guard))
    return gateway


TLS_PORT = free_port()


@pytest.fixture(scope="module")
def loose(module_own: Callable[..., Lasthop], backend: Echo, guard: Echo) -> Lasthop:
    lasthop = module_own()
    shown = Certificate("edge", CA, sans=dns("edge.test"))
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.http_profile(
            "edge",
            escapedSlashes="KeepUnchanged",
            mergeSlashes=False,
            underscoresInHeaders="Allow",
            idleSeconds=1,
            handshakeSeconds=1,
        ),
        docs.secret("edge-tls", **{"tls.crt": shown.pem, "tls.key": shown.key_pem}),
        docs.gateway("web", docs.http(lasthop.port), docs.https(TLS_PORT, "edge-tls"), **docs.with_profile("edge")),
        *objects(backend, guard),
    )
    lasthop.start()
    return lasthop


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_guarded_path_reaches_the_backend_unasked(strict: Lasthop, spelling: str) -> None:
    assert raw(strict.port, "/admin")[0] == 403
    status, headers, body = raw(strict.port, spelling)
    if status == 307:
        # The next request is matched by the target of the redirect.
        status, headers, body = raw(strict.port, headers["location"])
    assert status == 403, body


def test_a_header_with_an_underscore_does_not_reach_the_backend_and_the_request_does(strict: Lasthop) -> None:
    status, _, body = raw(strict.port, "/open", "X_User: admin", "X-User: anna")
    seen: dict[str, Any] = json.loads(body)
    assert (status, seen["headers"]["x-user"]) == (200, "anna")
    assert "x_user" not in seen["headers"]


def test_a_profile_lets_through_what_a_backend_needs(loose: Lasthop) -> None:
    _, _, body = raw(loose.port, "/a%2Fb//c", "X_User: admin")
    seen: dict[str, Any] = json.loads(body)
    assert (seen["path"], seen["headers"]["x_user"]) == ("/a%2Fb//c", "admin")


def test_a_connection_without_a_request_is_closed(loose: Lasthop) -> None:
    with socket.create_connection(("127.0.0.1", loose.port), timeout=10) as connection:
        assert connection.recv(1) == b""


def test_headers_that_are_not_complete_after_ten_seconds_end_the_request(strict: Lasthop) -> None:
    """However busily they arrive."""
    with socket.create_connection(("127.0.0.1", strict.port), timeout=1) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: edge.test\r\n")
        begun, answer = time.monotonic(), b""
        while not answer and time.monotonic() < begun + 30:
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(4096)
            if not answer:
                connection.sendall(b"X-More: headers\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert 9 < time.monotonic() - begun < 25


def test_a_backend_may_take_longer_than_headers_may(strict: Lasthop) -> None:
    status, _, _ = raw(strict.port, "/", "X-Plan: 200:12000", patience=25)
    assert status == 200


def test_a_handshake_that_stops_after_the_client_hello_is_ended(loose: Lasthop) -> None:
    with socket.create_connection(("127.0.0.1", TLS_PORT), timeout=10) as connection:
        connection.sendall(client_hello())
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=CA.pem)
    client = context.wrap_bio(incoming, outgoing, server_hostname="edge.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_the_heap_is_watched(strict: Lasthop) -> None:
    """Envoy reports the pressure of a resource after its first check."""
    (admin,) = strict.root.glob(f"r/**/{folder_name('shop/web')}/admin.sock")

    def pressure() -> bool:
        _, stats = asyncio.run(request(admin, "GET", "/stats?filter=fixed_heap.pressure"))
        return b"overload.envoy.resource_monitors.fixed_heap.pressure: " in stats

    until(pressure)
