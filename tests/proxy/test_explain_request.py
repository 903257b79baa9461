"""`lasthop explain request` against a real Envoy: its answer is the response that a client gets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.backends import until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.echo import Echo, echo, full_path, prefix_path, redirect, rewrite, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

TRUSTING = ssl.create_default_context(cadata=CA.pem)
TRUSTING.check_hostname = False


class Got(NamedTuple):
    """The status that a client got, and the backend that answered, if one did."""

    status: int
    backend: str = ""


class World(NamedTuple):
    lasthop: Lasthop
    tls: int
    """The port with HTTPS and TLS listeners."""


GRPC = {"type": "Exact", "service": "shop.Cart", "method": "Get"}
ROUTES = [
    rules(
        "edits",
        rule("/full", rewrite(path=full_path("/all")), to=[to("one")]),
        rule("/old", rewrite(path=prefix_path("/new"), hostname="inner.test"), to=[to("one")]),
        rule("/strip", rewrite(path=prefix_path("/")), to=[to("one")]),
        rule("/moved", redirect(path=prefix_path("/here"), statusCode=301)),
        rule("/away", redirect(hostname="else.test", scheme="https", statusCode=302)),
        rule("/port", redirect(port=8443)),
        rule("/whole", redirect(path=full_path("/whole/new"), scheme="https")),
        rule("/none"),
        rule("/missing", to=[to("not-there")]),
        rule("/empty", to=[to("empty")]),
        rule("/denied", to=[{"name": "one", "namespace": "vault", "port": 80}]),
    ),
    rules(
        "matches",
        rule({"path": {"type": "Exact", "value": "/a/b"}}, to=[to("one")]),
        rule({"path": {"type": "RegularExpression", "value": "/re[0-9]+/[^/]*"}}, to=[to("one")]),
        rule(
            {"path": {"type": "PathPrefix", "value": "/host"}, "headers": [{"name": "Host", "value": "edits.test"}]},
            to=[to("one")],
        ),
        rule(
            {"path": {"type": "PathPrefix", "value": "/proto"}, "headers": [{"name": "x-forwarded-proto", "value": "http"}]},
            to=[to("one")],
        ),
        rule({"path": {"type": "PathPrefix", "value": "/q"}, "queryParams": [{"name": "x", "value": "a b"}]}, to=[to("one")]),
        rule({"path": {"type": "PathPrefix", "value": "/q"}, "queryParams": [{"name": "x", "value": "1"}]}, to=[to("one")]),
        rule({"path": {"type": "PathPrefix", "value": "/two"}, "headers": [{"name": "x-a", "value": "1,2"}]}, to=[to("one")]),
        rule(
            {"path": {"type": "PathPrefix", "value": "/one"}, "headers": [{"name": "x-a", "type": "Exact", "value": "1"}]},
            to=[to("one")],
        ),
        rule(
            {
                "path": {"type": "PathPrefix", "value": "/some"},
                "headers": [{"name": "x-a", "type": "RegularExpression", "value": "[12]"}],
            },
            to=[to("one")],
        ),
        rule(
            "/cors",
            {"type": "CORS", "cors": {"allowOrigins": ["https://a.example"], "allowMethods": ["GET"]}},
            to=[to("one")],
        ),
        host="edits.test",
    ),
    docs.obj(
        docs.GATEWAY_API,
        "GRPCRoute",
        "calls",
        spec={
            "parentRefs": [{"name": "web"}],
            "hostnames": ["edits.test"],
            "rules": [{"matches": [{"method": GRPC}], "backendRefs": [to("not-there")]}],
        },
    ),
    rules("narrow", rule("/only", to=[to("one")]), host="x.wide.test"),
    rules("wide", rule("/", to=[to("one")]), host="*.wide.test"),
]


@pytest.fixture(scope="module")
def world(module_own: Callable[..., Lasthop]) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        one: Echo = stack.enter_context(echo("one"))
        lasthop, port = module_own(), free_port()
        secure = [
            {**docs.https(port, "own", "a.test"), "name": "a"},
            {**docs.https(port, "own", "*.b.test"), "name": "b"},
            {**docs.https(port, "gone", "shut.b.test"), "name": "shut"},
            docs.listener("pass", "TLS", port, "pass.test"),
        ]
        lasthop.write(
            "gateway.yaml",
            docs.gateway_class(),
            *(docs.namespace("shop"), docs.namespace("vault")),
            docs.gateway("web", docs.http(lasthop.port), *secure),
            docs.key_pair("own", Certificate("own", CA, sans=dns("a.test"))),
            *service("one", one.port),
            *(docs.service("empty", {"name": "http", "port": 80}), *docs.hop("first", 9)),
            docs.route("a", to("one"), host="a.test"),
            docs.route("b", to("one"), host="x.b.test"),
            docs.stream_route("TLSRoute", "through", to("one"), hosts=("pass.test",)),
            *ROUTES,
        )
        lasthop.start()
        assert json.loads(lasthop.ask("/api/not-applied")[1]) == []
        until(lasthop.settled)
        yield World(lasthop, port)


def sent(port: int, method: str, target: str, host: str, headers: list[str], tls: str | None = None) -> Got | str:
    """Sends the target unchanged, and returns the response; "closed" if there is none."""
    with contextlib.ExitStack() as stack:
        connection: socket.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        try:
            if tls is not None:
                connection = stack.enter_context(TRUSTING.wrap_socket(connection, server_hostname=tls or None))
            lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
            connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
        except (ConnectionError, ssl.SSLError, http.client.HTTPException):
            return "closed"
        body = response.read()
        seen: dict[str, Any] = json.loads(body) if body.startswith(b"{") else {}
        return Got(response.status, seen.get("backend", ""))


def told(answer: dict[str, Any]) -> Got | str:
    if answer["action"] in ("close", "unreachable", "connect"):
        return "closed"
    if answer["action"] == "forward":
        (share,) = answer["backends"]
        return Got(200, share["backend"].rpartition("/")[2])
    return Got(answer.get("status", 0))


TARGETS = [
    *("/full/x?y=1", "/full", "/old", "/old/", "/old/x/y?z=1", "/older", "/strip", "/strip/x", "/strip//x"),
    *("/moved", "/moved/x?q=1", "/away/x?q=1", "/port/x", "/whole?q", "/none", "/missing", "/empty", "/denied/x"),
    *(
        "/a/b",
        "/a/b/",
        "/a/b?x",
        "/a//b",
        "/a/./b",
        "/a/c/../b",
        "/a/%62",
        "/%61/b",
        "/a%2Fb",
        "/a%2fb?x=1",
        "/a%5cb",
        "/a\\b",
    ),
    *("/a/%2e%2e/a/b", "/a/%2E/b", "/../a/b", "/a/b/..", "/a/b/.", "/re12/x", "/re/x", "/re1/x/y", "/re1/%7e", "/re1/%zz"),
    *("/re1/a;b", "/re1/a%3Bb", '/re1/"', "/re1/[a]", "/re1/%C3%A9", "/host", "/proto", "/q?x=1", "/q?x=2", "/q?x=1&x=2"),
    *(
        "/q?x=2&x=1",
        "/q?x=a%20b",
        "/q?x=a+b",
        "/q?X=1",
        "/q?x",
        "/q?y=1&x=1",
        "/q;x=1",
        "/q#f?x=1",
        "/nothing",
        "/",
        "//",
        "/?/a/b",
    ),
    *("/a/b%00", "/re1/%25", "/re1/%2", "/full/../none"),
]
"""Sent as they are, so that the normalization of paths is Envoy's."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_end_of_a_path_is_as_documented(world: World, target: str) -> None:
    got = sent(world.lasthop.port, "GET", target.partition("#")[0], "edits.test", [])
    answer = world.lasthop.explained("GET", f"http://127.0.0.1:{world.lasthop.port}{target}", "Host: edits.test")
    assert told(answer) == got, answer


HEADERS = [
    ("edits.test:80", "/away", []),
    ("EDITS.test", "/a/b", []),
    ("edits.test.", "/a/b", []),
    ("edits.test:1234", "/port", []),
    ("edits.test:1234", "/host", []),
    ("edits.test:1234", "/moved", []),
    ("nobody.test", "/a/b", []),
    ("edits.test", "/two", ["X-A: 1", "x-a: 2"]),
    ("edits.test", "/two", ["x-a: 1"]),
    ("edits.test", "/two", ["x-a: 1,2"]),
    ("edits.test", "/two", ["x-a: 1, 2"]),
    ("edits.test", "/one", ["x-a: 1", "x-a: 2"]),
    ("edits.test", "/one", ["x-a: 2", "x-a: 1"]),
    ("edits.test", "/one", ["x-a: 1"]),
    ("edits.test", "/some", ["x-a: 3", "x-a: 2"]),
    ("edits.test", "/some", ["x-a: 2", "x-a: 2"]),
    ("edits.test", "/two", ["x_a: 1,2"]),
    ("edits.test", "/proto", ["x-forwarded-proto: https"]),
    ("y.wide.test", "/free", []),
    ("x.wide.test", "/only", []),
    ("x.wide.test", "/free", []),
    ("wide.test", "/free", []),
    ("edits.test", "/shop.Cart/Get", []),
]


@pytest.mark.parametrize("host, target, headers", HEADERS)
def test_host_and_headers_lead_to_the_documented_backend(world: World, host: str, target: str, headers: list[str]) -> None:
    got = sent(world.lasthop.port, "GET", target, host, headers)
    url = f"http://127.0.0.1:{world.lasthop.port}{target}"
    answer = world.lasthop.explained("GET", url, f"Host: {host}", *headers)
    assert told(answer) == got, answer


def test_a_preflight_is_answered_by_the_gateway_and_the_request_is_not(world: World) -> None:
    headers = ["Origin: https://a.example", "Access-Control-Request-Method: GET"]
    url = f"http://127.0.0.1:{world.lasthop.port}/cors"
    for method, asked in (("OPTIONS", headers), ("OPTIONS", []), ("GET", headers)):
        got = sent(world.lasthop.port, method, "/cors", "edits.test", asked)
        assert told(world.lasthop.explained(method, url, "Host: edits.test", *asked)) == got


def test_a_grpc_call_to_a_backend_that_is_missing_is_unavailable(world: World) -> None:
    url = f"http://127.0.0.1:{world.lasthop.port}/shop.Cart/Get"
    answer = world.lasthop.explained("POST", url, "Host: edits.test", "content-type: application/grpc")
    assert (answer["route"], answer["status"]) == ("GRPCRoute shop/calls", 503)
    assert "UNAVAILABLE" in json.dumps(answer["explanation"]) or "503" in answer["explanation"]["text"]


CONNECTIONS = [
    ("a.test", "a.test", "/"),
    ("a.test", "x.b.test", "/"),
    ("a.test", "y.b.test", "/"),
    ("a.test", "else.test", "/"),
    ("x.b.test", "x.b.test", "/"),
    ("x.b.test", "y.b.test", "/"),
    ("x.b.test", "a.test", "/"),
    ("shut.b.test", "shut.b.test", "/"),
    ("x.b.test", "shut.b.test", "/"),
    ("A.TEST", "a.test", "/"),
    ("else.test", "else.test", "/"),
    ("", "a.test", "/"),
]


@pytest.mark.parametrize("sni, host, target", CONNECTIONS)
def test_a_connection_belongs_to_the_listener_that_is_named(world: World, sni: str, host: str, target: str) -> None:
    """421 for a host of another listener, 404 where no route is, closed where no listener is."""
    got = sent(world.tls, "GET", target, host, [], tls=sni)
    url = f"https://{sni or '127.0.0.1'}:{world.tls}{target}"
    answer = world.lasthop.explained("GET", url, f"Host: {host}")
    assert told(answer) == got, answer


def test_passthrough_forwards_the_connection_and_plain_http_to_a_tls_port_is_closed(world: World) -> None:
    through = world.lasthop.explained("GET", f"https://pass.test:{world.tls}/")
    assert (through["action"], through["route"], through["backends"][0]["manner"]) == (
        "connect",
        "TLSRoute shop/through",
        "passthrough",
    )
    assert sent(world.tls, "GET", "/", "a.test", []) == "closed"
    assert told(world.lasthop.explained("GET", f"http://a.test:{world.tls}/")) == "closed"


def test_the_command_says_it_of_the_running_gateway_and_of_the_folder_alike(world: World) -> None:
    lasthop, url = world.lasthop, f"http://edits.test:{world.lasthop.port}/old/x"
    live = lasthop.command("explain", "request", "GET", url)
    folder = lasthop.command("explain", "request", url, "--dir", str(lasthop.folder))
    assert live.returncode == folder.returncode == 0, live.stderr + folder.stderr
    for shown in (live.stdout, folder.stdout):
        assert "forwarded to Service shop/one:80 (plaintext)" in shown
        assert "HTTPRoute shop/edits rule 1: /old/*, under edits.test" in shown
    assert "observed: " in live.stdout and "observed: " not in folder.stdout


def test_a_404_says_what_is_nearest(world: World) -> None:
    port = world.lasthop.port
    nearest = world.lasthop.command("explain", "request", f"http://edits.test:{port}/fulll").stdout
    assert "404, no route matches" in nearest
    assert nearest.index("nearest: HTTPRoute shop/edits rule 0: /full/*") < nearest.index(
        "nearest", nearest.index("nearest") + 1
    )
    close = world.lasthop.command("explain", "request", f"http://edit.test:{port}/full").stdout
    assert "did you mean edits.test? It is a hostname of" in close
    wider = world.lasthop.command("explain", "request", f"http://x.wide.test:{port}/free").stdout
    assert "HTTPRoute shop/wide rule 0: /* of *.wide.test would match, but x.wide.test is more specific" in wider
    other = world.lasthop.command("explain", "request", "http://edits.test/full").stdout
    assert f"did you mean http://edits.test:{port}/full?" in other
