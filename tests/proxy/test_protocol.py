"""The connection as a verified backend receives it: SNI, Host, ALPN, WebSocket, and the TLS options of the policy."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends import Backend, backend
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued, with_alpn
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop

V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def tls(*alpn: str, ciphers: str = "", **settings: Any) -> ssl.SSLContext:
    context = with_alpn(issued(), *alpn)
    for name, value in settings.items():
        setattr(context, name, value)
    if ciphers:
        context.set_ciphers(ciphers)
    return context


def option(**values: str) -> dict[str, str]:
    return {f"lasthop.dev/{name.replace('_', '-')}": value for name, value in values.items()}


CHACHA, AES = "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-GCM-SHA256"

# name: the backend, the policy's options, the connection that the backend then receives (None: it must not be reached)
CASES: dict[str, tuple[ssl.SSLContext, dict[str, str], dict[str, str] | None]] = {
    "h2": (tls("h2", "http/1.1"), {}, {"alpn": "h2", "version": "TLSv1.3"}),
    "h2-only": (tls("h2"), {}, {"alpn": "h2"}),
    "h1": (tls("http/1.1"), {}, {"alpn": "http/1.1"}),
    "prefers-h1": (tls("http/1.1", "h2"), {}, {"alpn": "http/1.1"}),
    "without-alpn": (issued(), {}, {"version": "TLSv1.3"}),
    "only-1-2": (tls(maximum_version=V1_2), {}, {"version": "TLSv1.2"}),
    "only-1-3": (tls(minimum_version=V1_3), {}, {"version": "TLSv1.3"}),
    "min-1-3": (tls(), option(min_tls_version="1.3"), {"version": "TLSv1.3"}),
    "min-1-3-against-1-2": (tls(maximum_version=V1_2), option(min_tls_version="1.3"), None),
    "max-1-2": (tls(), option(max_tls_version="1.2"), {"version": "TLSv1.2"}),
    "max-1-2-against-1-3": (tls(minimum_version=V1_3), option(max_tls_version="1.2"), None),
    "cipher": (tls(), option(max_tls_version="1.2", cipher_suites=CHACHA), {"cipher": CHACHA}),
    "other-cipher": (tls(), option(max_tls_version="1.2", cipher_suites=AES), {"cipher": AES}),
    "no-common-cipher": (tls(ciphers=AES, maximum_version=V1_2), option(cipher_suites=CHACHA), None),
    "alpn-h1": (tls("h2", "http/1.1"), option(alpn="http/1.1"), {"alpn": "http/1.1"}),
    "alpn-h2": (tls("h2", "http/1.1"), option(alpn="h2"), {"alpn": "h2"}),
    "foreign-option": (tls(), {"example.com/anything": "x"}, {"version": "TLSv1.3"}),
}


@pytest.fixture(scope="module")
def hops(gateway: Lasthop) -> Iterator[dict[str, Backend]]:
    with contextlib.ExitStack() as stack:
        backends = {name: stack.enter_context(backend(case[0], name=name)) for name, case in CASES.items()}
        written = [docs.config_map("protocol-ca", CA.pem)]
        for name, (_, options, _) in CASES.items():
            written += docs.hop(name, backends[name].port, docs.policy(name, "api.example", "protocol-ca", options=options))
        gateway.load("protocol.yaml", *written)
        yield backends


@pytest.mark.parametrize("name", CASES)
def test_the_connection_is_as_backend_and_policy_agree(gateway: Lasthop, hops: dict[str, Backend], name: str) -> None:
    expected = CASES[name][2]
    answer = gateway.get(name)
    if expected is None:
        assert answer == (503, BACKEND_FAILURE)
        assert hops[name].requests == []
    else:
        assert answer == (200, name)
        seen = hops[name].last
        assert {field: getattr(seen, field) for field in expected} == expected
        assert seen.sni == "api.example"


def test_the_host_header_is_the_clients_and_sni_the_policys(gateway: Lasthop, hops: dict[str, Backend]) -> None:
    assert gateway.get("h1").status == 200
    seen = hops["h1"].last
    assert "host: h1.test" in seen.heads[-1].lower().splitlines()
    assert "api.example" not in seen.heads[-1]
    assert seen.sni == "api.example"


@pytest.mark.parametrize("name", ["h2", "h1", "without-alpn"])
def test_a_websocket_goes_over_http_1_1_even_to_a_backend_that_speaks_h2(
    gateway: Lasthop, hops: dict[str, Backend], name: str
) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
        upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"
        client.sendall(f"GET /ws HTTP/1.1\r\nhost: {name}.test\r\n{upgrade}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += client.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101 ")
        client.sendall(b"any bytes from here on")
        assert client.recv(4096) == b"any bytes from here on"
    seen = next(connection for connection in hops[name].connections if any("/ws" in head for head in connection.heads))
    assert seen.alpn in ("http/1.1", None)
    assert seen.sni == "api.example"
    assert not hops[name].saw_plaintext


def test_requests_share_one_h2_connection(gateway: Lasthop, hops: dict[str, Backend]) -> None:
    for _ in range(5):
        assert gateway.get("h2-only").status == 200
    assert len(hops["h2-only"].connections) == 1
