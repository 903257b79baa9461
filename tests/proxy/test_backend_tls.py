"""docs/backend-tls.md, row by row: the protocol to a backend, for every kind of route on every kind of listener.

There are four Services: one without a policy, one with a valid and one with an invalid policy, and one without a policy whose
port says TLS; every row reaches all of them.
So one Service and one policy are used by all kinds of routes at once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.backends import Backend, backend, until
from tests.certificates import Certificate, dns
from tests.docs.pages import DOCS, table_under
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued, with_alpn
from tests.proxy.documents import Document
from tests.proxy.echo import external_auth, rule, rules
from tests.proxy.grpc_echo import route as grpc_route
from tests.proxy.grpc_echo import rule as grpc_rule
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop
from tests.proxy.streams import asked, datagram, udp_backend

POLICIES = ("none", "valid", "invalid", "says-tls")
UDP = 53
ANY_NAME = ssl.create_default_context(cadata=CA.pem)
ANY_NAME.check_hostname = False


class Row(NamedTuple):
    route: str
    listener: str
    outcomes: tuple[str, ...]
    """Without a policy, with a valid one, with an invalid one; without one for a port that says TLS."""


ROWS_AS_WRITTEN = table_under(DOCS / "backend-tls.md", "## Where it applies")
ROWS = [Row(route, listener, tuple(outcomes)) for route, listener, *outcomes in ROWS_AS_WRITTEN]
CASES = [(row, policy) for row in ROWS for policy in range(len(POLICIES))]


class World(NamedTuple):
    lasthop: Lasthop
    backends: dict[str, Backend]
    ports: dict[str, int]
    """By listener."""


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[World]:
    lasthop = module_own()
    names = ["https", "tls", *(f"{kind}-{policy}" for kind in ("tcp", "udp") for policy in POLICIES)]
    ports = {name: free_port() for name in names}
    own = Certificate("gateway", CA, sans=dns("*.ends.test", "*.tcp.test"))
    with contextlib.ExitStack() as stack:
        # Each accepts any connection, and records it.
        contexts = {name: with_alpn(issued("api.example", "*.pass.test"), "h2", "http/1.1") for name in POLICIES}
        backends = {
            name: stack.enter_context(backend(context, name=name, plaintext_too=True)) for name, context in contexts.items()
        }
        lasthop.write(
            "gateway.yaml",
            docs.gateway_class(),
            docs.gateway(
                "web", docs.http(lasthop.port), docs.https(ports["https"], "own"), *listeners(ports), *asking(lasthop.port)
            ),
            docs.key_pair("own", own),
            docs.config_map("ca", CA.pem),
            docs.policy("valid", "api.example", "ca"),
            docs.policy("invalid", "api.example", "missing"),
            docs.policy("valid-import", "api.example", "ca", service="valid", imported=True),
            docs.policy("invalid-import", "api.example", "missing", service="invalid", imported=True),
        )
        for name in POLICIES:
            udp = stack.enter_context(udp_backend(name))
            lasthop.write(f"{name}.yaml", *reached(name, backends[name].port, udp))
        lasthop.start()
        yield World(lasthop, backends, ports)


def listeners(ports: dict[str, int]) -> Iterator[Document]:
    yield docs.listener("pass", "TLS", ports["tls"], "*.pass.test")
    yield docs.listener("ends", "TLS", ports["tls"], "*.ends.test", "own")
    for policy in POLICIES:
        yield docs.listener(f"tls-{policy}", "TLS", ports["tls"], f"{policy}.tcp.test", "own")
        yield docs.listener(f"tcp-{policy}", "TCP", ports[f"tcp-{policy}"])
        yield docs.listener(f"udp-{policy}", "UDP", ports[f"udp-{policy}"])


def asking(port: int) -> Iterator[Document]:
    for policy in POLICIES:
        filters = {"requests": [external_auth("HTTP", policy)]}
        yield {**docs.http(port, f"asks-{policy}"), "hostname": f"listener-{policy}.test", "filters": filters}


def reached(name: str, port: int, udp_port: int) -> Iterator[Document]:
    """A Service and every route to it."""
    says = {"appProtocol": "kubernetes.io/TLS"} if name == "says-tls" else {}
    yield docs.service(name, {"name": "https", "port": 443, **says}, {"name": "udp", "port": UDP, "protocol": "UDP"})
    yield from docs.endpoints(name, port)
    (datagrams,) = docs.endpoints(f"{name}-udp", udp_port, port_name="udp", service=name)
    datagrams["ports"][0]["protocol"] = "UDP"
    yield datagrams
    yield docs.route(name, docs.to(name))
    yield grpc_route(name, grpc_rule(docs.to(name)))
    yield rules(f"asks-{name}", rule("/", external_auth("HTTP", name), to=[docs.to("none")]))
    yield docs.route(f"listener-{name}", docs.to("none"))
    yield docs.service_import(name, **says)
    yield from docs.imported_endpoints(name, port)
    yield docs.route(f"import-{name}", docs.to_import(name))
    yield docs.stream_route("TLSRoute", name, docs.to(name), hosts=(f"{name}.pass.test", f"{name}.ends.test"))
    yield docs.stream_route("TCPRoute", name, docs.to(name), listener=f"tcp-{name}")
    yield docs.stream_route("TCPRoute", f"{name}-tls", docs.to(name), listener=f"tls-{name}")
    yield docs.stream_route("UDPRoute", name, docs.to(name, UDP), listener=f"udp-{name}")


def ask(world: World, row: Row, policy: str) -> str:
    """The answer that a client gets; of HTTP the status if there is a refusal."""
    match row.route, row.listener:
        case "HTTPRoute", "HTTP" | "HTTPS" as listener:
            https: dict[str, Any] = {"port": world.ports["https"], "tls": ANY_NAME} if listener == "HTTPS" else {}
            status, body = world.lasthop.get(policy, **https)
            return body if status == 200 else f"{status}{'' if body == BACKEND_FAILURE else body}"
        case "GRPCRoute", "HTTP":
            return called(http.client.HTTPConnection("127.0.0.1", world.lasthop.port, timeout=10), policy)
        case "GRPCRoute", "HTTPS":
            port = world.ports["https"]
            return called(http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=ANY_NAME), policy)
        case "HTTPRoute, to a ServiceImport", "HTTP":
            status, body = world.lasthop.get(f"import-{policy}")
            return body if status == 200 else f"{status}{'' if body == BACKEND_FAILURE else body}"
        case (
            "HTTPRoute, the server of its ExternalAuth filter" | "HTTPRoute, the server of its listener's ExternalAuth filter",
            _,
        ):
            status, body = world.lasthop.get(f"{'listener' if 'listener' in row.route else 'asks'}-{policy}")
            return policy if (status, body) == (200, "none") else f"{status}{body}"
        case "TLSRoute", "TLS, Passthrough":
            return asked(world.ports["tls"], f"{policy}.pass.test")
        case "TLSRoute", "TLS, Terminate":
            return asked(world.ports["tls"], f"{policy}.ends.test")
        case "TCPRoute", "TLS, Terminate":
            return asked(world.ports["tls"], f"{policy}.tcp.test")
        case "TCPRoute", "TCP":
            return asked(world.ports[f"tcp-{policy}"])
        case "UDPRoute", "UDP":
            return datagram(world.ports[f"udp-{policy}"])
        case _:
            raise AssertionError(f"no client for {row}")


def called(connection: http.client.HTTPConnection, name: str) -> str:
    """Returns the result for a gRPC client: the body or the code."""
    with contextlib.closing(connection):
        connection.request("POST", "/any.Service/Say", headers={"Host": f"{name}.test", "Content-Type": "application/grpc"})
        response = connection.getresponse()
        body = response.read().decode()
        return "UNAVAILABLE" if response.headers.get("grpc-status") == "14" else body


@pytest.mark.parametrize(
    ("row", "policy"), CASES, ids=[f"{row.route} on {row.listener}, policy {POLICIES[policy]}" for row, policy in CASES]
)
def test_row(world: World, row: Row, policy: int) -> None:
    name = POLICIES[policy]
    served = world.backends[name]
    before = len(served.connections)
    answer = ask(world, row, name)
    # HTTP may come over a connection that is open already, so the last one counts if there is no new one, and a new one may
    # be opened and then not be needed.
    came = [c for c in served.connections[before:] if c.first] or [c for c in served.connections if c.heads][-1:]
    match row.outcomes[policy]:
        case "plaintext":
            assert (answer, came[-1].plaintext) == (name, True)
        case "TLS, verified":
            assert (answer, came[-1].plaintext, came[-1].sni) == (name, False, "api.example")
        case "the client's TLS":
            assert (answer, came[-1].plaintext, came[-1].sni) == (name, False, f"{name}.pass.test")
        case "UDP":
            assert answer == name
            assert len(served.connections) == before
        case "500" | "503" | "UNAVAILABLE" as refused:
            assert answer == refused
            assert len(served.connections) == before
        case "closed":
            assert answer == ""
            assert len(served.connections) == before
        case other:
            raise AssertionError(f"what is {other}?")
    if name != "none" and row.outcomes[policy] != "the client's TLS":
        assert not [c for c in served.connections[before:] if c.plaintext]


def test_every_kind_of_listener_has_a_row() -> None:
    assert {row.listener for row in ROWS} == {"HTTP", "HTTPS", "TLS, Terminate", "TLS, Passthrough", "TCP", "UDP"}


def test_the_statuses_agree(world: World) -> None:
    """An invalid policy is an invalid backendRef wherever it has a say, and nowhere else."""
    lasthop = world.lasthop
    for kind, path, reason in (
        ("HTTPRoute", "invalid", "InvalidBackendTLS"),
        ("GRPCRoute", "invalid", "InvalidBackendTLS"),
        ("HTTPRoute", "asks-invalid", "InvalidBackendTLS"),
        ("TLSRoute", "invalid", "InvalidBackendTLS"),
        ("TCPRoute", "invalid", "InvalidBackendTLS"),
        ("TCPRoute", "invalid-tls", "InvalidBackendTLS"),
        ("HTTPRoute", "says-tls", "UnsupportedProtocol"),
        ("GRPCRoute", "says-tls", "UnsupportedProtocol"),
        ("HTTPRoute", "asks-says-tls", "UnsupportedProtocol"),
        ("HTTPRoute", "import-says-tls", "UnsupportedProtocol"),
        ("TLSRoute", "says-tls", "UnsupportedProtocol"),
        ("TCPRoute", "says-tls", "UnsupportedProtocol"),
        ("TCPRoute", "says-tls-tls", "UnsupportedProtocol"),
        ("UDPRoute", "invalid", "ResolvedRefs"),
        ("TCPRoute", "valid", "ResolvedRefs"),
        ("TLSRoute", "valid", "ResolvedRefs"),
    ):
        conditions = lasthop.conditions(kind, path)
        assert (conditions["Accepted"][0], conditions["ResolvedRefs"][1]) == ("True", reason), (kind, path)
    assert lasthop.conditions("BackendTLSPolicy", "valid")["Accepted"][0] == "True"
    assert lasthop.conditions("BackendTLSPolicy", "invalid")["Accepted"][0] == "False"


def test_the_log_explains_why_a_connection_failed(world: World) -> None:
    assert ask(world, Row("TCPRoute", "TLS, Terminate", ("", "", "")), "invalid") == ""

    def logged() -> Document | None:
        lines = (world.lasthop.root / "out").read_text().splitlines()
        return next((e for e in map(json.loads, lines) if e.get("route") == "TCPRoute shop/invalid-tls"), None)

    entry = until(logged)
    assert entry["authority"] == "invalid.tcp.test"
    assert "ConfigMap shop/missing does not exist" in entry["why"]
