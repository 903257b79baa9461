"""Endpoints that cannot be connected to: another one is tried before anything was sent, and nothing else is."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc
import pytest

from lasthop.engine.outputs.envoy.clusters import BUFFER_LIMIT
from lasthop.engine.outputs.envoy.retries import INTERVAL
from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.docs.pages import DOCS, table_under
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued, with_alpn
from tests.proxy.documents import Document
from tests.proxy.echo import ask, echo, rule, rules
from tests.proxy.grpc_echo import call, server
from tests.proxy.grpc_echo import route as grpc_route
from tests.proxy.grpc_echo import rule as grpc_rule
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked

REQUESTS = 100
WAYS = {
    "HTTPRoute, HTTP/1.1": "http/1.1",
    "HTTPRoute, HTTP/2": "h2",
    "GRPCRoute": "gRPC",
    "TLSRoute": "TLSRoute",
    "TCPRoute": "TCPRoute",
}
BAD = ("wrong certificate", "nothing listens", "plaintext")
ROWS = table_under(DOCS / "backend-tls.md", "## One bad endpoint among several")


def test_the_table_has_every_way_and_promises_that_none_fails() -> None:
    assert [row[0] for row in ROWS] == list(WAYS)
    assert {cell for row in ROWS for cell in row[1:]} == {"0"}


class Gateways(NamedTuple):
    lasthop: Lasthop
    tls: int
    tcp: dict[str, int]
    """A port for each name."""


@pytest.fixture(scope="module")
def gateways(module_own: Callable[..., Lasthop]) -> Gateways:
    names = [*(_name("TCPRoute", bad) for bad in BAD), "tcp-all-bad", "tcp-weights", "tcp-at-once", "tcp-ejected"]
    made = Gateways(module_own(), free_port(), {name: free_port() for name in names})
    hosts = [f"{_name('TLSRoute', bad)}.test" for bad in BAD]
    own = Certificate("gateway", CA, sans=dns(*hosts))
    made.lasthop.standard()
    made.lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.gateway(
            "web",
            docs.http(made.lasthop.port),
            docs.listener("ends", "TLS", made.tls, secret="own"),
            *(docs.listener(name, "TCP", port) for name, port in made.tcp.items()),
        ),
        docs.secret("own", tls_crt=own.pem, tls_key=own.key_pem),
        docs.config_map("ca", CA.pem),
        *docs.hop("first", 9),
    )
    made.lasthop.start()
    return made


def _name(way: str, bad: str) -> str:
    return f"{way.split('/')[0].lower()}-{bad.replace(' ', '-')}"


def backend(name: str, *ports: int) -> list[Document]:
    """A Service under a policy, found on these ports of this machine."""
    return [docs.service(name), *docs.endpoints(name, *ports), docs.policy(name, "api.example", "ca")]


@pytest.fixture
def bad_ports(serve: Callable[..., Backend]) -> Iterator[dict[str, int]]:
    plain, wrong = serve(None), serve(issued("old.example"))
    yield {"wrong certificate": wrong.port, "nothing listens": free_port(), "plaintext": plain.port}
    assert not wrong.saw_plaintext and not plain.saw_plaintext, "somebody was told a request without TLS"


class Taker:
    """A TLS server that reads a request, and closes the connection without a word."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._context = issued()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as tls:
                self.taken.append(tls.recv(65536).decode())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)


def taker() -> contextlib.closing[Taker]:
    return contextlib.closing(Taker())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("way", [WAYS[row[0]] for row in ROWS])
def test_with_one_bad_endpoint_of_two_no_request_fails(
    gateways: Gateways, serve: Callable[..., Backend], bad_ports: dict[str, int], way: str, bad: str
) -> None:
    name = _name(way, bad)
    lasthop = gateways.lasthop
    if way == "gRPC":
        with server(name, Certificate("grpc", CA, sans=dns("api.example"))) as good:
            routed = grpc_route(name, grpc_rule(docs.to(name)))
            lasthop.load(f"{name}.yaml", *backend(name, good.port, bad_ports[bad]), routed)
            said = Counter(call(lasthop, f"{name}.test").code for _ in range(REQUESTS))
        assert said == {grpc.StatusCode.OK: REQUESTS}
        return
    good_one = serve(with_alpn(issued(), "h2") if way == "h2" else issued(), name=name)
    documents = backend(name, good_one.port, bad_ports[bad])
    if way in ("TLSRoute", "TCPRoute"):
        hosts = (f"{name}.test",) if way == "TLSRoute" else ()
        listener = "ends" if way == "TLSRoute" else name
        routed = docs.stream_route(way, name, docs.to(name), listener=listener, hosts=hosts)
        lasthop.load(f"{name}.yaml", *documents, routed)
        port = gateways.tls if way == "TLSRoute" else gateways.tcp[name]
        assert Counter(asked(port, *hosts) for _ in range(REQUESTS)) == {name: REQUESTS}
    else:
        lasthop.load(f"{name}.yaml", *documents, docs.route(name, docs.to(name)))
        assert Counter(lasthop.get(name).status for _ in range(REQUESTS)) == {200: REQUESTS}
        assert {seen.alpn for seen in good_one.connections} == {"h2" if way == "h2" else None}
    assert len(good_one.requests) == REQUESTS


@pytest.mark.parametrize("way", ["http/1.1", "TCPRoute"])
def test_nor_does_one_of_many_at_once(
    gateways: Gateways, serve: Callable[..., Backend], bad_ports: dict[str, int], way: str
) -> None:
    name = "tcp-at-once" if way == "TCPRoute" else "at-once"
    good = serve(issued(), name=name, delay=0.05)
    documents = backend(name, good.port, bad_ports["wrong certificate"])
    with ThreadPoolExecutor(50) as clients:
        if way == "TCPRoute":
            routed = docs.stream_route(way, name, docs.to(name), listener=name)
            gateways.lasthop.load(f"{name}.yaml", *documents, routed)
            answers = Counter(clients.map(lambda _: asked(gateways.tcp[name]), range(REQUESTS)))
            assert answers == {name: REQUESTS}
        else:
            gateways.lasthop.load(f"{name}.yaml", *documents, docs.route(name, docs.to(name)))
            assert Counter(clients.map(lambda _: gateways.lasthop.get(name).status, range(REQUESTS))) == {200: REQUESTS}


@pytest.mark.parametrize("way", ["http/1.1", "TCPRoute"])
def test_where_all_are_bad_the_answer_comes_at_once(gateways: Gateways, serve: Callable[..., Backend], way: str) -> None:
    bad = [serve(issued("old.example")) for _ in range(4)]
    name, most = ("all-bad", 2) if way == "http/1.1" else ("tcp-all-bad", 4)
    documents = backend(name, *(failing.port for failing in bad))
    began = 0.0
    if way == "http/1.1":
        gateways.lasthop.load(f"{name}.yaml", *documents, docs.route(name, docs.to(name)))
        began = time.monotonic()
        assert [gateways.lasthop.get(name).status for _ in range(10)] == [503] * 10
    else:
        routed = docs.stream_route(way, name, docs.to(name), listener=name)
        gateways.lasthop.load(f"{name}.yaml", *documents, routed)
        began = time.monotonic()
        assert [asked(gateways.tcp[name]) for _ in range(10)] == [""] * 10
    assert time.monotonic() - began < 10
    assert 10 < sum(len(failing.connections) for failing in bad) <= 10 * most


def test_a_request_that_was_sent_is_not_sent_again(gateways: Gateways) -> None:
    """For any method, and although another endpoint would accept it."""
    with taker() as first, taker() as second:
        name = "sent-once"
        gateways.lasthop.load(f"{name}.yaml", *backend(name, first.port, second.port), docs.route(name, docs.to(name)))
        for method in ("GET", "POST", "PUT"):
            answer = ask(gateways.lasthop, f"{name}.test", method=method, body=None if method == "GET" else "order")
            assert answer.status == 503, answer
    taken = [*first.taken, *second.taken]
    assert sorted(head.split()[0] for head in taken) == ["GET", "POST", "PUT"]


def test_a_client_cannot_request_retries(gateways: Gateways) -> None:
    with taker() as only:
        name = "not-asked"
        gateways.lasthop.load(f"{name}.yaml", *backend(name, only.port), docs.route(name, docs.to(name)))
        wished = {
            "x-envoy-retry-on": "5xx,reset,retriable-4xx",
            "x-envoy-max-retries": "20",
            "x-envoy-retry-grpc-on": "unavailable",
        }
        assert ask(gateways.lasthop, f"{name}.test", headers=wished).status == 503
        assert len(only.taken) == 1


@pytest.mark.parametrize("size", [100, 60_000, 1_000_000])
def test_a_body_is_sent_whole_or_not_at_all(gateways: Gateways, bad_ports: dict[str, int], size: int) -> None:
    """A request that exceeds Envoy's buffer before the connection fails cannot be retried."""
    name = f"body-{size}"
    with echo(name, issued()) as good:
        documents = backend(name, good.port, bad_ports["nothing listens"])
        gateways.lasthop.load(f"{name}.yaml", *documents, docs.route(name, docs.to(name)))
        statuses = Counter(ask(gateways.lasthop, f"{name}.test", method="POST", body="x" * size).status for _ in range(30))
        assert {len(seen["body"]) for seen in good.seen} == {size}
    assert statuses[200] == len(good.seen)
    assert statuses.keys() == ({200} if size < BUFFER_LIMIT else {200, 503})
    if size > BUFFER_LIMIT:
        entry = until(lambda: gateways.lasthop.entries(name), "a line of the log")[0]
        assert "64 KiB" in entry["why"] or "connection refused" in entry["why"], entry


@pytest.mark.parametrize("way", ["http/1.1", "TCPRoute"])
def test_a_backend_that_is_bad_as_a_whole_keeps_its_share(gateways: Gateways, serve: Callable[..., Backend], way: str) -> None:
    """A retry stays with the backend that the weights have chosen: the other one never gets requests of the first."""
    name = "weights" if way == "http/1.1" else "tcp-weights"
    good, bad = serve(issued(), name="good"), serve(issued("old.example"))
    documents = [*backend(f"{name}-good", good.port), *backend(f"{name}-bad", bad.port)]
    shares = [docs.to(f"{name}-good", weight=1), docs.to(f"{name}-bad", weight=3)]
    if way == "http/1.1":
        gateways.lasthop.load(f"{name}.yaml", *documents, docs.route(name, *shares))
        answers = [gateways.lasthop.get(name).status == 200 for _ in range(400)]
    else:
        gateways.lasthop.load(f"{name}.yaml", *documents, docs.stream_route(way, name, *shares, listener=name))
        answers = [asked(gateways.tcp[name]) == "good" for _ in range(400)]
    # A quarter is 100 of 400; with one retry by the weights it would be 175.
    assert 60 < answers.count(True) < 150


def test_a_session_whose_endpoint_is_gone_goes_on_elsewhere(gateways: Gateways, serve: Callable[..., Backend]) -> None:
    name = "session-moves"
    running = {name: serve(issued(), name=name) for name in ("one", "two")}
    kept = rule("/", to=[docs.to(name)], sessionPersistence={"type": "Header", "header": {"name": "at"}})
    gateways.lasthop.load(
        f"{name}.yaml", *backend(name, *(backend_server.port for backend_server in running.values())), rules(name, kept)
    )
    first = ask(gateways.lasthop, f"{name}.test")
    session = {"at": first.headers["at"]}
    assert {ask(gateways.lasthop, f"{name}.test", headers=session).body for _ in range(20)} == {first.body}
    running[first.body].close()
    moved = [ask(gateways.lasthop, f"{name}.test", headers=session) for _ in range(20)]
    (other,) = running.keys() - {first.body}
    assert {(answer.status, answer.body) for answer in moved} == {(200, other)}
    assert {answer.headers["at"] for answer in moved} != {session["at"]}


def test_a_profile_turns_it_off(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> None:
    lasthop, good = own(), serve(issued())
    lasthop.standard(**docs.with_profile("once"))
    once = docs.obj(docs.OWN_API, "GatewayProfile", "once", spec={"proxy": {"connectRetries": 0, "ejectionSeconds": 0}})
    lasthop.write("profile.yaml", once, docs.config_map("ca", CA.pem))
    lasthop.start()
    lasthop.load("off.yaml", *backend("off", good.port, free_port()), docs.route("off", docs.to("off")))
    statuses = Counter(lasthop.get("off").status for _ in range(60))
    assert statuses.keys() == {200, 503}


def test_retries_do_not_multiply_the_requests_to_a_failing_backend(gateways: Gateways, serve: Callable[..., Backend]) -> None:
    """Two connections for a request at most, and beyond the budget one."""
    bad = [serve(issued("old.example")) for _ in range(2)]
    name = "budget"
    gateways.lasthop.load(f"{name}.yaml", *backend(name, *(failing.port for failing in bad)), docs.route(name, docs.to(name)))
    with ThreadPoolExecutor(50) as clients:
        assert Counter(clients.map(lambda _: gateways.lasthop.get(name).status, range(300))) == {503: 300}
    assert sum(len(failing.connections) for failing in bad) <= 600


@pytest.mark.parametrize("way", ["http/1.1", "TCPRoute"])
def test_an_endpoint_that_keeps_failing_gets_no_requests_for_a_while(
    gateways: Gateways, serve: Callable[..., Backend], way: str
) -> None:
    name = "ejected" if way == "http/1.1" else "tcp-ejected"
    good, bad = serve(issued(), name=name), serve(issued("old.example"))
    documents = backend(name, good.port, bad.port)
    tcp = way == "TCPRoute"
    route = docs.stream_route(way, name, docs.to(name), listener=name) if tcp else docs.route(name, docs.to(name))
    gateways.lasthop.load(f"{name}.yaml", *documents, route)

    def left_out() -> bool:
        """Of 30 requests it would have got one, but for a chance of 1 : 10^9."""
        before = len(bad.connections)
        for _ in range(30):
            assert asked(gateways.tcp[name]) == name if tcp else gateways.lasthop.get(name).status == 200
        return len(bad.connections) == before > 0

    until(left_out, "it is left out")


def test_an_endpoint_that_resets_requests_is_not_ejected(gateways: Gateways, serve: Callable[..., Backend]) -> None:
    """Clients can send requests that a backend resets, and would have half of its endpoints ejected."""
    name = "resetting"
    running = [serve(with_alpn(issued(), "h2"), resets=True) for _ in range(2)]
    gateways.lasthop.load(
        f"{name}.yaml", *backend(name, *(backend_server.port for backend_server in running)), docs.route(name, docs.to(name))
    )
    end = time.monotonic() + 2 * INTERVAL
    with ThreadPoolExecutor(20) as clients:
        while time.monotonic() < end:
            assert set(clients.map(lambda _: gateways.lasthop.get(name).status, range(40))) == {503}
        before = [len(backend_server.requests) for backend_server in running]
        assert set(clients.map(lambda _: gateways.lasthop.get(name).status, range(40))) == {503}
    assert all(len(backend_server.requests) > seen for backend_server, seen in zip(running, before, strict=True))
