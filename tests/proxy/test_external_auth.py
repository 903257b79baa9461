"""ExternalAuth: servers over TLS that authorize requests, and the responses while they are unavailable."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy import grpc_echo
from tests.proxy.auth_server import AuthServer, auth_server
from tests.proxy.certs import CA, HOSTNAME, OTHER_CA, issued
from tests.proxy.documents import Document
from tests.proxy.echo import Echo, ask, cors, echo, external_auth, redirect, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

PROTOCOLS = ("HTTP", "GRPC")
PASS = {"x-token": "good"}
ANSWER = [("x-user", "anna"), ("x-inner", "secret"), ("content-type", "text/html"), ("www-authenticate", "Basic")]


def secured(name: str, port: int, ca: str = "auth-ca") -> list[Document]:
    return [docs.service(name), *docs.endpoints(name, port), docs.policy(name, HOSTNAME, ca)]


@pytest.fixture(scope="module")
def backend(gateway: Lasthop) -> Iterator[Echo]:
    with echo("main") as main:
        gateway.load("auth-backend.yaml", docs.config_map("auth-ca", CA.pem), *service("auth-main", main.port))
        yield main
        assert "refused configuration" not in gateway.log


@pytest.fixture(scope="module")
def http_server(gateway: Lasthop, backend: Echo) -> Iterator[Echo]:
    """Answers as `x-plan` requests, with the received request in the body."""
    with echo("auth", issued()) as server:
        server.response_headers = ANSWER
        gateway.load("auth-http.yaml", *secured("auth-http", server.port))
        yield server


@pytest.fixture(scope="module")
def grpc_server(gateway: Lasthop, backend: Echo) -> Iterator[AuthServer]:
    with auth_server(Certificate("auth", CA, sans=dns(HOSTNAME))) as server:
        gateway.load("auth-grpc.yaml", *secured("auth-grpc", server.port))
        yield server


def guarded(gateway: Lasthop, name: str, *filters: Document, **more: Any) -> None:
    gateway.load(f"auth-route-{name}.yaml", rules(name, rule("/", *filters, to=[to("auth-main")], **more)))


def test_http_admitted_requests_get_the_named_headers(gateway: Lasthop, backend: Echo, http_server: Echo) -> None:
    lists: Document = {"path": "/check", "allowedHeaders": ["X-Token"], "allowedResponseHeaders": ["X-User"]}
    guarded(gateway, "http-lists", external_auth("HTTP", "auth-http", **lists))
    headers = {**PASS, "authorization": "me", "x-other": "1", "x-user": "forged"}
    seen = ask(gateway, "http-lists.test", "/a?b=c", method="POST", body="hello", headers=headers).seen
    assert (seen["backend"], seen["body"], seen["path"]) == ("main", "hello", "/a?b=c")
    assert seen["headers"]["x-user"] == "anna"
    assert "x-inner" not in seen["headers"]
    (told,) = http_server.asked("http-lists.test")
    assert (told["method"], told["path"], told["body"]) == ("POST", "/check/a?b=c", "")
    assert told["headers"]["content-length"] == "0"
    assert (told["headers"]["x-token"], told["headers"]["authorization"]) == ("good", "me")
    assert "x-other" not in told["headers"]


def test_http_without_lists_all_of_the_answer_is_added_but_what_is_about_itself(
    gateway: Lasthop, backend: Echo, http_server: Echo
) -> None:
    guarded(gateway, "http-all", external_auth("HTTP", "auth-http"))
    seen = ask(gateway, "http-all.test", method="POST", body="{}", headers={**PASS, "content-type": "application/json"}).seen
    assert (seen["host"], seen["body"]) == ("http-all.test", "{}")
    assert (seen["headers"]["x-user"], seen["headers"]["x-inner"]) == ("anna", "secret")
    assert seen["headers"]["content-type"] == "application/json"
    (told,) = http_server.asked("http-all.test")
    assert told["path"] == "/"
    assert "x-token" not in told["headers"]


def test_http_denied_clients_get_the_servers_response(gateway: Lasthop, backend: Echo, http_server: Echo) -> None:
    guarded(gateway, "http-no", external_auth("HTTP", "auth-http", allowedHeaders=["x-plan"]))
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    for more in ({}, upgrade):
        said = ask(gateway, "http-no.test", headers={"x-plan": "401", **more})
        assert (said.status, said.headers["www-authenticate"], said.headers["content-type"]) == (401, "Basic", "text/html")
        assert json.loads(said.body)["backend"] == "auth"
    moved = rule("/", external_auth("HTTP", "auth-http", allowedHeaders=["x-plan"]), redirect(hostname="elsewhere.test"))
    gateway.load("auth-moved.yaml", rules("http-moved", moved))
    assert ask(gateway, "http-moved.test", headers={"x-plan": "401"}).status == 401
    assert ask(gateway, "http-moved.test").status == 302
    # Only a 200 permits a request, and a failure of the server permits none.
    assert ask(gateway, "http-no.test", headers={"x-plan": "302"}).status == 302
    assert ask(gateway, "http-no.test", headers={"x-plan": "500"}).status == 503
    assert backend.asked("http-no.test") == []
    entry = until(lambda: gateway.entries("http-no"))[0]
    assert "ExternalAuth server of HTTPRoute shop/http-no" in entry["why"]


def test_grpc_admitted_requests_get_the_servers_headers(gateway: Lasthop, backend: Echo, grpc_server: AuthServer) -> None:
    guarded(gateway, "grpc-yes", external_auth("GRPC", "auth-grpc"))
    seen = ask(gateway, "grpc-yes.test", "/a?b=c", headers={**PASS, "x-other": "1"}).seen
    assert (seen["backend"], seen["headers"]["x-user"]) == ("main", "anna")
    told = grpc_server.asked[-1]
    assert (told.method, told.path, told.host, told.headers["x-other"]) == ("GET", "/a?b=c", "grpc-yes.test", "1")


def test_grpc_denied_clients_get_the_servers_response(gateway: Lasthop, backend: Echo, grpc_server: AuthServer) -> None:
    guarded(gateway, "grpc-no", external_auth("GRPC", "auth-grpc", allowedHeaders=["x-other"]))
    said = ask(gateway, "grpc-no.test", headers={**PASS, "x-other": "1"})
    assert (said.status, said.headers["x-why"], said.body) == (402, "no token", "not without a token")
    assert backend.asked("grpc-no.test") == []
    told = grpc_server.asked[-1].headers
    assert told["x-other"] == "1" and "x-token" not in told


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_body_is_forwarded_whole_or_refused(
    gateway: Lasthop, backend: Echo, http_server: Echo, grpc_server: AuthServer, protocol: str
) -> None:
    name = f"body-{protocol.lower()}"
    filter = external_auth(protocol, f"auth-{protocol.lower()}", body=100_000)
    guarded(gateway, name, filter)
    body = "x" * 100_000
    seen = ask(gateway, f"{name}.test", method="POST", body=body, headers=PASS).seen
    assert seen["body"] == body
    told = http_server.asked(f"{name}.test")[0]["body"] if protocol == "HTTP" else grpc_server.asked[-1].body
    assert told == body
    asked = len(http_server.seen) + len(grpc_server.asked)
    assert ask(gateway, f"{name}.test", method="POST", body=f"{body}x", headers=PASS).status == 413
    assert len(backend.asked(f"{name}.test")) == 1
    assert len(http_server.seen) + len(grpc_server.asked) == asked


def test_a_browser_may_ask_about_cors_without_being_anybody(gateway: Lasthop, backend: Echo, http_server: Echo) -> None:
    guarded(
        gateway,
        "auth-cors",
        external_auth("HTTP", "auth-http", allowedHeaders=["x-plan"]),
        cors(allowOrigins=["https://a.test"], allowMethods=["GET"]),
    )
    asks = {"origin": "https://a.test", "access-control-request-method": "GET", "x-plan": "403"}
    said = ask(gateway, "auth-cors.test", method="OPTIONS", headers=asks)
    assert (said.status, said.headers["access-control-allow-origin"]) == (200, "https://a.test")
    assert http_server.asked("auth-cors.test") == []
    assert ask(gateway, "auth-cors.test", headers=asks).status == 403


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("flaw", ["wrong certificate", "plaintext server", "invalid policy", "missing bundle", "nobody"])
def test_requests_without_a_reachable_authorization_server_are_refused(
    gateway: Lasthop, backend: Echo, serve: Callable[..., Backend], protocol: str, flaw: str
) -> None:
    """`serve` sees to it that no server with TLS ever hears plaintext."""
    name = f"{flaw.replace(' ', '-')}-{protocol.lower()}"
    server = serve(issued(issuer=OTHER_CA if flaw == "wrong certificate" else CA), name=name)
    if flaw == "plaintext server":
        server.context = None
    written = [*secured(name, server.port, "missing" if flaw == "missing bundle" else "auth-ca")]
    if flaw == "invalid policy":
        written[-1] = docs.policy(name, HOSTNAME, "auth-ca", options={"lasthop.dev/unknown": "x"})
    gateway.load(f"auth-{name}.yaml", *(written if flaw != "nobody" else []))
    other = rule("/open", to=[to("auth-main")])
    asked = rule("/", external_auth(protocol, name), to=[to("auth-main")])
    gateway.load("auth-route.yaml", rules(name, other, asked))
    for _ in range(3):
        assert ask(gateway, f"{name}.test", headers=PASS).status == 503
    assert grpc_echo.call(gateway, f"{name}.test", headers=PASS).code is grpc.StatusCode.UNAVAILABLE
    assert ask(gateway, f"{name}.test", "/open").seen["backend"] == "main"
    assert [seen["path"] for seen in backend.asked(f"{name}.test")] == ["/open"]
    assert not [connection for connection in server.connections if connection.plaintext]
    assert server.requests == []
    conditions = gateway.conditions("HTTPRoute", name)
    reasons = {"invalid policy": "InvalidBackendTLS", "missing bundle": "InvalidBackendTLS", "nobody": "BackendNotFound"}
    assert (conditions["Accepted"][0], conditions["ResolvedRefs"][1]) == ("True", reasons.get(flaw, "ResolvedRefs"))
    if flaw in reasons:
        assert server.connections == []
        entry = until(lambda: gateway.entries(name))[0]
        assert f"Service shop/{name}" in entry["why"] or f"BackendTLSPolicy shop/{name}" in entry["why"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_policy_that_breaks_or_mends_takes_effect_at_once(
    gateway: Lasthop, backend: Echo, http_server: Echo, grpc_server: AuthServer, protocol: str
) -> None:
    name = f"mended-{protocol.lower()}"
    port = http_server.port if protocol == "HTTP" else grpc_server.port
    guarded(gateway, name, external_auth(protocol, name))
    for ca, status in (("auth-ca", 200), ("missing", 503), ("auth-ca", 200)):
        gateway.load(f"auth-{name}.yaml", *secured(name, port, ca))
        assert ask(gateway, f"{name}.test", headers=PASS).status == status


def test_a_server_is_queried_only_with_a_grant(gateway: Lasthop, backend: Echo, serve: Callable[..., Backend]) -> None:
    server = serve(issued(), name="foreign")
    written = [
        docs.namespace("auth"),
        docs.config_map("auth/auth-ca", CA.pem),
        docs.service("auth/foreign"),
        *docs.endpoints("auth/foreign", server.port),
        docs.policy("auth/foreign", HOSTNAME, "auth-ca"),
        rules("foreign", rule("/", external_auth("HTTP", "foreign", namespace="auth"), to=[to("auth-main")])),
    ]
    gateway.load("auth-foreign.yaml", *written)
    assert ask(gateway, "foreign.test").status == 500
    assert gateway.conditions("HTTPRoute", "foreign")["ResolvedRefs"][1] == "RefNotPermitted"
    assert (server.connections, backend.asked("foreign.test")) == ([], [])
    gateway.load("auth-foreign.yaml", *written, docs.grant("auth/g", "HTTPRoute", "shop", "Service"))
    assert ask(gateway, "foreign.test").seen["backend"] == "main"
    assert server.last.sni == HOSTNAME
