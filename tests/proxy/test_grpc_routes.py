"""GRPCRoutes with a real Envoy and real gRPC servers: the backend of each call, and the client's status if it fails."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from functools import partial

import grpc
import pytest

from tests.backends import until
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA
from tests.proxy.echo import mirror, prefix, request_headers, response_headers
from tests.proxy.echo import rule as http_rule
from tests.proxy.echo import rules as http_rules
from tests.proxy.grpc_echo import Server, call, channel, route, rule, server
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop
from tests.servers import server as http_server

OK, UNAVAILABLE, UNIMPLEMENTED = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED
PLAIN = {"name": "grpc", "port": 80}


def service(name: str, port: int) -> list[docs.Document]:
    return [docs.service(name, PLAIN), *docs.endpoints(name, port, port_name="grpc")]


@pytest.fixture(scope="module")
def servers(gateway: Lasthop) -> Iterator[dict[str, Server]]:
    """Three in plaintext, without any appProtocol."""
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(server(name)) for name in ("one", "two", "three")}
        gateway.load("grpc-services.yaml", *(d for name, s in running.items() for d in service(f"grpc-{name}", s.port)))
        yield running


def to(name: str, **more: object) -> docs.Document:
    return docs.to(f"grpc-{name}", 80, **more)


def test_calls_go_by_service_method_and_header_the_most_specific_first(gateway: Lasthop, servers: dict[str, Server]) -> None:
    gateway.load(
        "grpc-match.yaml",
        route(
            "calls",
            rule(to("one"), method={"service": "echo.Echo"}),
            rule(to("two"), method={"service": "echo.Echo", "method": "Say"}),
            rule(to("three"), method={"service": "echo.Echo", "method": "Say"}, headers={"version": "2"}),
            rule(to("two"), method={"method": "Anywhere"}),
            rule(to("three"), method={"type": "RegularExpression", "service": "shop\\.[A-Z][a-z]+", "method": "Get.*"}),
        ),
    )
    asked = {
        "/echo.Echo/Other": "one",
        "/echo.Echo/Say": "two",
        "/any.Service/Anywhere": "two",
        "/shop.Cart/GetItems": "three",
    }
    assert {method: call(gateway, "calls.test", method).answer["name"] for method in asked} == asked
    assert call(gateway, "calls.test", headers={"version": "2"}).answer["name"] == "three"
    for method in ("/echo.EchoMore/Say", "/shop.Cart/Put", "/shop.cart/GetItems", "/any.Service/Elsewhere"):
        assert call(gateway, "calls.test", method).code is UNIMPLEMENTED
    assert gateway.get("calls").status == 404, "only gRPC is a GRPCRoute's business"
    with channel(gateway, "calls.test") as opened:
        stream: grpc.StreamStreamMultiCallable[bytes, bytes] = opened.stream_stream("/echo.Echo/Stream")
        assert list(stream(iter([b"a", b"b"]), timeout=10)) == [b"again a", b"again b"]


def test_filters_edit_headers_and_mirror(gateway: Lasthop, servers: dict[str, Server]) -> None:
    edited = to("one", filters=[request_headers(add={"x-of": "backend"})])
    filters = [request_headers(set={"x-of": "rule"}), response_headers(set={"x-more": "yes"}), mirror("grpc-three")]
    gateway.load("grpc-filters.yaml", route("edited", rule(edited, name="named", filters=filters)))
    servers["three"].calls.clear()
    said = call(gateway, "edited.test", headers={"x-of": "client"})
    assert (said.answer["name"], said.answer["metadata"]["x-of"], said.metadata["x-more"]) == ("one", "rule,backend", "yes")
    until(lambda: [c["method"] for c in servers["three"].calls] == ["/echo.Echo/Say"], "the copy arrives")


def test_an_http_route_and_a_grpc_route_share_a_hostname(gateway: Lasthop, servers: dict[str, Server]) -> None:
    by_http = http_rules("shared", http_rule(prefix("/echo.Echo"), to=[docs.to("nowhere", 80)]), host="shared.test")
    gateway.load("grpc-shared.yaml", route("shared", rule(to("one"), method={"service": "echo.Echo"})), by_http)
    assert call(gateway, "shared.test").answer["name"] == "one"
    assert call(gateway, "shared.test", "/other.Service/Say").code is UNIMPLEMENTED
    assert gateway.conditions("HTTPRoute", "shared")["Accepted"][0] == "True"
    assert gateway.conditions("GRPCRoute", "shared")["Accepted"][0] == "True"
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", gateway.port)) as connection:
        connection.request("GET", "/echo.Echo/Say", headers={"Host": "shared.test"})
        assert connection.getresponse().status == 500, "the HTTPRoute's, whose backend does not exist"


def test_calls_that_cannot_be_served_get_unavailable_with_a_message(gateway: Lasthop, servers: dict[str, Server]) -> None:
    unknown = {"type": "ExtensionRef", "extensionRef": {"group": "x.example", "kind": "Filter", "name": "x"}}
    gateway.load(
        "grpc-refused.yaml",
        route(
            "refused-calls",
            rule(docs.to("missing", 80), method={"method": "Missing"}),
            rule(method={"method": "Nobody"}),
            rule(to("one"), method={"method": "Filtered"}, filters=[unknown]),
            rule(docs.to("grpc-one", 80, namespace="other"), method={"method": "Forbidden"}),
        ),
    )
    said = {
        method: call(gateway, "refused-calls.test", f"/any.Service/{method}") for method in ("Missing", "Nobody", "Filtered")
    }
    assert {answer.code for answer in said.values()} == {UNAVAILABLE}
    assert said["Missing"].details == BACKEND_FAILURE.strip()
    assert said["Filtered"].details == said["Nobody"].details == "The gateway cannot serve this call as its route requires."
    assert call(gateway, "refused-calls.test", "/any.Service/Forbidden").code is UNAVAILABLE
    assert call(gateway, "refused-calls.test", "/any.Service/None").code is UNIMPLEMENTED
    entries = until(lambda: [e for e in gateway.entries("refused-calls") if e["path"] == "/any.Service/Missing"])
    assert (entries[0]["grpc_status"], entries[0]["route"]) == ("Unavailable", "GRPCRoute shop/refused-calls")
    assert "Service shop/missing does not exist" in entries[0]["why"]


@pytest.fixture(scope="module")
def tls(gateway: Lasthop) -> Iterator[Server]:
    with server("tls", Certificate("backend", CA, sans=dns("api.example"))) as server_with_tls:
        gateway.write("grpc-ca.yaml", docs.config_map("grpc-ca", CA.pem), docs.config_map("grpc-other-ca", OTHER_CA.pem))
        yield server_with_tls


def hop(name: str, port: int, policy: docs.Document) -> list[docs.Document]:
    return [docs.service(name), *docs.endpoints(name, port), route(name, rule(docs.to(name))), policy]


def test_a_policy_verifies_a_grpc_backend_and_every_failure_is_unavailable(gateway: Lasthop, tls: Server) -> None:
    policies = {
        "grpc-verified": docs.policy("grpc-verified", "api.example", "grpc-ca"),
        "grpc-wrong-name": docs.policy("grpc-wrong-name", "other.example", "grpc-ca"),
        "grpc-wrong-ca": docs.policy("grpc-wrong-ca", "api.example", "grpc-other-ca"),
        "grpc-invalid": docs.policy("grpc-invalid", "api.example", "grpc-ca-that-is-missing"),
    }
    gateway.load("grpc-tls.yaml", *(d for name, policy in policies.items() for d in hop(name, tls.port, policy)))
    assert call(gateway, "grpc-verified.test").answer["name"] == "tls"
    for name in ("grpc-wrong-name", "grpc-wrong-ca", "grpc-invalid"):
        said = call(gateway, f"{name}.test")
        assert (said.code, said.details) == (UNAVAILABLE, BACKEND_FAILURE.strip())
        until(partial(gateway.entries, name), "the failure is in the log")
    assert "wants other.example" in gateway.entries("grpc-wrong-name")[0]["why"]
    assert [c["method"] for c in tls.calls] == ["/echo.Echo/Say"]
    assert gateway.conditions("GRPCRoute", "grpc-invalid")["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
    assert gateway.conditions("BackendTLSPolicy", "grpc-verified")["Accepted"][0] == "True"
    gateway.write("grpc-tls.yaml", *hop("grpc-invalid", tls.port, docs.policy("grpc-invalid", "api.example", "grpc-ca")))
    until(lambda: call(gateway, "grpc-invalid.test").code is OK, "the mended policy serves")


def test_the_log_and_probe_report_a_backend_without_http_2(gateway: Lasthop, tls: Server) -> None:
    with http_server(Certificate("backend", CA, sans=dns("api.example")).server_context()) as port:
        policy = docs.policy("grpc-h1", "api.example", "grpc-ca")
        documents = hop("grpc-h1", port, policy)
        gateway.load("grpc-h1.yaml", *documents)
        assert call(gateway, "grpc-h1.test").code is UNAVAILABLE
        (entry, *_) = until(partial(gateway.entries, "grpc-h1"), "the failure is in the log")
        assert entry["why"] == "backend does not answer in HTTP/2, which gRPC needs"
        calls_alone = gateway.command("probe", "shop/grpc-h1")
        assert "✗ alpn" in calls_alone.stdout and "which gRPC needs" in calls_alone.stdout, calls_alone.stdout
        gateway.load("grpc-h1.yaml", *documents, docs.route("grpc-h1", docs.to("grpc-h1")))
        with_requests = gateway.command("probe", "shop/grpc-h1")
        assert "! alpn" in with_requests.stdout and "calls of GRPCRoutes fail" in with_requests.stdout, with_requests.stdout
        by_route = gateway.command("probe", "grpcroute/grpc-h1", "-n", "shop")
        assert "✗ alpn" in by_route.stdout, by_route.stdout + by_route.stderr
