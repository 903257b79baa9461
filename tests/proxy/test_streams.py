"""Routes of connections and datagrams while things change: connections that continue, connections that end, and the share of
each backend."""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.backends import Backend, backend, until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked, datagram, opened, spoken, udp_backend
from tests.servers import server

DRAIN = 2
"""Seconds that these tests give connections of a chain that is gone. (Everybody else: 30.)"""
SHORT = f"import lasthop.edge.proxy.launch as it; it.DRAIN_SECONDS = {DRAIN}; from lasthop.cli.main import main; main()"
OLDER, NEWER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
NAMES = dns("a.test", "b.test", "api.test", "mtls.test")


class Streams:
    """A Gateway with a listener of each kind, whose ports are known."""

    def __init__(self, lasthop: Lasthop) -> None:
        self.lasthop = lasthop
        self.tls, self.tcp, self.udp = free_port(), free_port(), free_port()
        self.own = Certificate("gateway", CA, sans=NAMES)

    def write(self, *more: Document) -> None:
        self.lasthop.write(
            "gateway.yaml",
            docs.gateway_class(),
            docs.gateway(
                "web",
                docs.http(self.lasthop.port),
                docs.listener("ends", "TLS", self.tls, secret="own"),
                docs.listener("pass", "TLS", self.tls, "*.pass.test"),
                docs.listener("tcp", "TCP", self.tcp),
                docs.listener("udp", "UDP", self.udp),
                *more,
            ),
            docs.secret("own", tls_crt=self.own.pem, tls_key=self.own.key_pem),
            docs.config_map("ca", CA.pem),
            docs.config_map("other-ca", OTHER_CA.pem),
        )

    def backend(self, name: str, port: int, *policies: Document) -> None:
        self.lasthop.write(f"{name}-backend.yaml", docs.service(name), *docs.endpoints(name, port), *policies)

    def lines(self) -> list[Document]:
        """Of the access log."""
        return [json.loads(line) for line in (self.lasthop.root / "out").read_text().splitlines()]

    def route(self, kind: str, name: str, *backends: Document, **settings: object) -> None:
        self.lasthop.write(f"{kind}-{name}.yaml", docs.stream_route(kind, name, *backends, **settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def streams(module_own: Callable[..., Lasthop]) -> Iterator[Streams]:
    lasthop = module_own()
    lasthop.executable = [sys.executable, "-c", SHORT]
    made = Streams(lasthop)
    made.write()
    lasthop.start()
    yield made


def alive(connection: socket.socket) -> bool:
    try:
        return bool(spoken(connection))
    except OSError:
        return False


def closed(connection: socket.socket) -> bool:
    """Without saying a word on it."""
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_changed_policy_ends_its_connections_and_no_others(streams: Streams, serve: Callable[..., Backend]) -> None:
    one, two = serve(issued(), name="one"), serve(issued(), name="two")
    streams.backend("one", one.port, docs.policy("one", "api.example", "ca"))
    streams.backend("two", two.port, docs.policy("two", "api.example", "ca"))
    streams.route("TLSRoute", "one", docs.to("one"), listener="ends", hosts=("a.test",))
    streams.route("TLSRoute", "two", docs.to("two"), listener="ends", hosts=("b.test",))
    streams.lasthop.settle()
    with opened(streams.tls, "a.test") as changed, opened(streams.tls, "b.test") as other:
        assert (spoken(changed), spoken(other)) == ("one", "two")
        # Another route, another listener, other endpoints: nobody is disturbed.
        streams.route("TLSRoute", "three", docs.to("two"), listener="ends", hosts=("c.test",))
        streams.write(docs.listener("more", "TLS", streams.tls, "more.test", "own"))
        streams.lasthop.settle()
        assert (spoken(changed), spoken(other)) == ("one", "two")
        # Stricter: a CA that has not signed the backend's certificate.
        streams.backend("one", one.port, docs.policy("one", "api.example", "other-ca"))
        until(lambda: asked(streams.tls, "a.test") == "", "new connections are under the new policy")
        until(lambda: closed(changed), "the old connection is drained")
        assert alive(other)
        assert asked(streams.tls, "b.test") == "two"
        # Invalid: not a byte, not even a connection.
        streams.backend("one", one.port, docs.policy("one", "api.example", "missing"))
        until(lambda: streams.lasthop.conditions("TLSRoute", "one")["ResolvedRefs"][1] == "InvalidBackendTLS")
        streams.lasthop.settle()
        seen = len(one.connections)
        assert asked(streams.tls, "a.test") == ""
        assert len(one.connections) == seen
        assert alive(other)
        # And back again.
        streams.backend("one", one.port, docs.policy("one", "api.example", "ca"))
        until(lambda: asked(streams.tls, "a.test") == "one")


@pytest.mark.parametrize("kind", ["TLSRoute", "TCPRoute"])
def test_a_backend_that_wants_a_client_certificate_is_logged(
    streams: Streams, serve: Callable[..., Backend], kind: str
) -> None:
    """With TLS 1.3 the handshake succeeds, and then the backend closes."""
    context = issued()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=CA.pem)
    name = f"mtls-{kind.lower()}"
    streams.backend(name, serve(context).port, docs.policy(name, "api.example", "ca"))
    if kind == "TLSRoute":
        streams.route(kind, "mtls", docs.to(name), listener="ends", hosts=("mtls.test",))
    else:
        streams.route(kind, "tcp", docs.to(name), listener="tcp")
    streams.lasthop.settle()
    assert (asked(streams.tls, "mtls.test") if kind == "TLSRoute" else asked(streams.tcp)) == ""
    lines = until(lambda: [line for line in streams.lines() if line.get("policy") == f"shop/{name}"])
    assert lines[0]["why"].endswith("(with TLS 1.3 it does this if it wants a client certificate)")
    assert lines[0]["gateway"] == "shop/web"


def test_a_new_policy_ends_plaintext_on_tcp(streams: Streams, serve: Callable[..., Backend]) -> None:
    served = serve(issued(), name="tcp", plaintext_too=True)
    streams.backend("tcp", served.port)
    streams.route("TCPRoute", "tcp", docs.to("tcp"), listener="tcp")
    streams.lasthop.settle()
    with opened(streams.tcp) as before:
        assert spoken(before) == "tcp"
        assert served.connections[-1].plaintext
        streams.backend("tcp", served.port, docs.policy("tcp", "api.example", "ca"))
        until(lambda: asked(streams.tcp) and not served.connections[-1].plaintext)
        assert served.last.sni == "api.example"
        # A tunnel has no ALPN of its own.
        assert served.last.alpn is None
        until(lambda: closed(before), "the old connection is drained")


def test_a_renewed_certificate_of_the_listener_drops_no_connection(streams: Streams, serve: Callable[..., Backend]) -> None:
    served = serve(None, name="renewed")
    streams.backend("renewed", served.port)
    streams.route("TLSRoute", "renewed", docs.to("renewed"), listener="ends", hosts=("api.test",))
    streams.lasthop.settle()
    with opened(streams.tls, "api.test") as before:
        assert spoken(before) == "renewed"
        streams.own = Certificate("renewed gateway", CA, sans=NAMES)
        streams.write()

        def shown() -> bool:
            with opened(streams.tls, "api.test") as after:
                assert isinstance(after, ssl.SSLSocket)
                return "renewed gateway" in str((after.getpeercert() or {})["subject"])

        until(shown)
        time.sleep(DRAIN + 0.5)
        assert alive(before)


def test_passthrough_hands_on_nothing_but_tls(streams: Streams) -> None:
    with backend(issued("x.pass.test"), name="passed", plaintext_too=True) as served:
        streams.backend("passed", served.port)
        streams.route("TLSRoute", "passed", docs.to("passed"), hosts=("*.pass.test",), listener="pass")
        streams.lasthop.settle()
        assert asked(streams.tls, "x.pass.test") == "passed"
        seen = len(served.connections)
        assert asked(streams.tls) == "", "plaintext on a TLS port"
        assert asked(streams.tls, "unknown.test") == "", "a name that nobody has"
        assert len(served.connections) == seen


def test_tls_in_tls(streams: Streams) -> None:
    """The client's TLS, which the backend ends with one certificate, travels in the gateway's, which it ends with another."""
    outer, inner = issued("api.example"), issued("inner.test")
    with server(outer, lambda connection: _inside(inner, connection)) as port:
        streams.backend("nested", port, docs.policy("nested", "api.example", "ca"))
        tcp = free_port()
        streams.write(docs.listener("nested", "TCP", tcp))
        streams.route("TCPRoute", "nested", docs.to("nested"), listener="nested")
        streams.lasthop.settle()

        def answered() -> bool:
            with opened(tcp, "inner.test") as connection:
                return connection.recv(100) == b"from inside"

        until(answered)


def _inside(context: ssl.SSLContext, connection: socket.socket) -> None:
    """A TLS handshake and a greeting inside a TLS connection, which Python's sockets cannot nest."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            connection.sendall(outgoing.read())
            incoming.write(connection.recv(65536))
    tls.write(b"from inside")
    connection.sendall(outgoing.read())
    connection.recv(1)


def test_shares_of_connections_and_of_datagrams(streams: Streams) -> None:
    """3 to 1 to the share of a backend that is not there, which comes to nothing; nothing for a weight of 0."""
    tcp, udp = free_port(), free_port()
    streams.write(docs.listener("shared", "TCP", tcp), docs.listener("shared-udp", "UDP", udp))
    with contextlib.ExitStack() as stack:
        for name in ("most", "none"):
            served = stack.enter_context(backend(name=name))
            datagrams = docs.endpoints(f"{name}-udp", stack.enter_context(udp_backend(name)), port_name="u", service=name)
            datagrams[0]["ports"][0]["protocol"] = "UDP"
            ports = ({"name": "https", "port": 443}, {"name": "u", "port": 53, "protocol": "UDP"})
            streams.lasthop.write(f"{name}.yaml", docs.service(name, *ports), *docs.endpoints(name, served.port), *datagrams)
        for kind, listener, port in (("TCPRoute", "shared", 443), ("UDPRoute", "shared-udp", 53)):
            shares = (docs.to("most", port, weight=3), docs.to("gone", port, weight=1), docs.to("none", port, weight=0))
            streams.route(kind, "shared", *shares, listener=listener)
        streams.lasthop.settle()
        until(lambda: datagram(udp, within=0.2) == "most")
        connections = collections.Counter(asked(tcp) for _ in range(200))
        datagrams_to = collections.Counter(datagram(udp, within=0.05) for _ in range(200))
    for counts in (connections, datagrams_to):
        assert counts.keys() == {"most", ""}
        assert 120 <= counts["most"] <= 180, counts


def test_the_older_of_two_routes_on_a_listener_gets_the_connections(streams: Streams) -> None:
    tcp = free_port()
    streams.write(docs.listener("rivals", "TCP", tcp))
    with backend(name="older") as older, backend(name="newer") as newer:
        streams.backend("older", older.port)
        streams.backend("newer", newer.port)
        for name, created in (("newer", NEWER), ("older", OLDER)):
            streams.route("TCPRoute", name, docs.to(name), listener="rivals", created=created)
            streams.lasthop.settle()
        until(lambda: asked(tcp) == "older")
        assert {asked(tcp) for _ in range(10)} == {"older"}
        status = streams.lasthop.object("Gateway", "web")["status"]["listeners"]
        assert next(entry["attachedRoutes"] for entry in status if entry["name"] == "rivals") == 2
        assert [f["reason"] for f in streams.lasthop.findings() if f["object"] == "TCPRoute shop/newer"] == ["Shadowed"]
        # A mistake of the newer one is nobody else's.
        streams.route("TCPRoute", "newer", docs.to("gone"), listener="rivals", created=NEWER)
        streams.lasthop.settle()
        assert asked(tcp) == "older"
