"""Backends and clients that write odd things: nothing of it moves a cursor, is markup on the page, or grows without bound."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from cryptography import x509

from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, HOSTNAME
from tests.proxy.lasthop import Lasthop

EVIL: Final = "\x1b[31m\r\n503 forged\x07\u202e<script>x</script>"
MANY: Final = 3000
LEAVES: Final = 40
OUTPUTS: Final = (
    ("status",),
    ("status", "-o", "wide"),
    ("status", "-o", "json"),
    ("audit",),
    ("audit", "-o", "markdown"),
    ("audit", "-o", "sarif"),
    ("check",),
    ("top", "--once"),
    ("explain", "backendtlspolicy", "shop/names"),
    ("explain", "request", "GET", "http://other-names.test/"),
    ("probe", "shop/names"),
    ("probe", "shop/other-names"),
    ("probe", "shop/subject"),
)
LONGEST: Final = 2000
"""Characters of a line for people."""


@contextlib.contextmanager
def a_leaf_for_each_connection() -> Iterator[int]:
    contexts = [Certificate(f"leaf {n}", CA, sans=dns(HOSTNAME)).server_context() for n in range(LEAVES)]
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

    def serve(listening: socket.socket) -> None:
        for number in range(1_000_000):
            with contextlib.suppress(OSError):
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                with contexts[number % LEAVES].wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65536)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture
def shop(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> Iterator[Lasthop]:
    odd = x509.DNSName("\x1b[2J\r\n<script>x</script>,evil")
    many = tuple(x509.DNSName(f"n{n}.example") for n in range(MANY))
    contexts: dict[str, ssl.SSLContext] = {
        "subject": Certificate(EVIL, CA, sans=dns(HOSTNAME)).server_context(),
        "names": Certificate("x", CA, sans=(*dns(HOSTNAME), odd, *many)).server_context(),
        "other-names": Certificate("x", CA, sans=(odd, *many)).server_context(),
    }
    lasthop = own()
    lasthop.standard()
    with a_leaf_for_each_connection() as port:
        ports = {name: serve(context).port for name, context in contexts.items()} | {"leaves": port}
        hops = (docs.hop(name, port, docs.policy(name, HOSTNAME, "ca")) for name, port in ports.items())
        lasthop.write("shop.yaml", docs.config_map("ca", CA.pem), *(document for hop in hops for document in hop))
        lasthop.start()
        yield lasthop


def sent(lasthop: Lasthop, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", lasthop.port), timeout=20) as client:
        client.sendall(request)
        return client.recv(100)


def escaped(name: str, text: str) -> None:
    odd = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not odd, (name, odd)


def test_untrusted_text_is_escaped_and_bounded_everywhere(shop: Lasthop) -> None:
    for _ in range(3):
        assert [shop.get(name).status for name in ("subject", "names", "other-names")] == [200, 200, 503]
    for _ in range(3 * LEAVES):
        assert shop.get("leaves").status == 200
    for request in (
        b"GET /?<img/onerror=x>&\"' HTTP/1.1\r\nhost: other-names.test\r\n\r\n",
        b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nhost: other-names.test\r\n\r\n",
        b"GET /\x1b[31m HTTP/1.1\r\nhost: other-names.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: <script>x</script>\r\n\r\n",
    ):
        assert re.match(rb"HTTP/1.1 (400|404|503) ", sent(shop, request))
    until(lambda: shop.conditions("BackendTLSPolicy", "other-names")["BackendConnected"][0] == "False")
    until(lambda: '"subject":"CN=leaf ' in shop.ask("/api/audit")[1].decode())
    said = shop.conditions("BackendTLSPolicy", "other-names")["BackendConnected"][2]
    assert "<script>" in said and " and more, policy shop/other-names wants api.example" in said and len(said) < 600
    for args in OUTPUTS:
        result = shop.command(*args)
        assert "Traceback" not in result.stderr
        escaped(" ".join(args), result.stdout)
        assert "json" in args or "sarif" in args or max(map(len, result.stdout.splitlines())) < LONGEST, args
    page = shop.ask("/")[1].decode()
    details = [shop.ask(f"/detail?hop={id}")[1].decode() for id in sorted(set(re.findall(r'hop=(\w+)"', page)))]
    assert len(details) >= 4 and any("&lt;script&gt;" in detail for detail in details)
    for text in (page, *details):
        escaped("page", text)
        assert "<script>x" not in text and "<img" not in text
    for path in ("/api/traffic", "/api/findings"):
        escaped(path, shop.ask(path)[1].decode())
    metrics = shop.ask("/metrics")[1].decode()
    escaped("metrics", metrics)
    assert 0 < sum('service="leaves"' in line for line in metrics.splitlines()) < 60, "however many certificates it shows"
    escaped("log", shop.log)
