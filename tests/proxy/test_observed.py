"""After real traffic to real backends, condition, finding, audit and figures agree with the clients' results."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import pytest

from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.directory import folder_name
from lasthop.engine.outputs.envoy.statistics import HOP_STATS
from tests.backends import Backend, until
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, asking, issued, with_alpn
from tests.proxy.documents import Document
from tests.proxy.echo import echo, external_auth, mirror, rule, rules
from tests.proxy.grpc_echo import call, server
from tests.proxy.grpc_echo import route as grpc_route
from tests.proxy.grpc_echo import rule as grpc_rule
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked, opened

Condition = tuple[str, str, str]


@pytest.fixture(scope="module")
def gateway(module_own: Callable[..., Lasthop]) -> Lasthop:
    """Of this module's own: after a flood in another test, Envoy logs only a share of the requests for a while."""
    lasthop = module_own()
    lasthop.standard()
    lasthop.start()
    return lasthop


def hop(path: str, port: int, hostname: str = "api.example", **settings: Any) -> list[Document]:
    """A backend under a policy with the tests' CA."""
    return [
        docs.config_map(f"{path}-ca", CA.pem),
        *docs.hop(path, port, docs.policy(path, hostname, f"{path}-ca"), **settings),
    ]


def connected(gateway: Lasthop, name: str, status: str, words: str = "") -> Condition:
    """Returns the condition once it has that status and text: counters, with fewer details, may arrive before the log."""

    def found() -> Condition | None:
        said = gateway.conditions("BackendTLSPolicy", name)["BackendConnected"]
        assert said[0] == status and words in said[2], said
        return said

    return until(found)


def seen(gateway: Lasthop, name: str, protocol: str = "auto") -> Document | None:
    """Returns the state of a hop from /api/traffic."""
    hops = json.loads(gateway.ask("/api/traffic")[1])["hops"]
    return next(
        (hop_report for hop_report in hops if (hop_report["backend"], hop_report["protocol"]) == (f"shop/{name}", protocol)),
        None,
    )


def audited(gateway: Lasthop, name: str) -> Document:
    hops = json.loads(gateway.ask("/api/audit")[1])["hops"]
    hop_report: Document = next(hop_report for hop_report in hops if hop_report["service"] == f"shop/{name}")
    return hop_report


def shown(gateway: Lasthop, name: str) -> Document:
    """The certificate that the backend of a hop showed, once it is known."""
    (leaf,) = until(lambda: audited(gateway, name)["observed"]["certificates"], "its certificate is in the log")
    certificate: Document = leaf
    return certificate


def failing(gateway: Lasthop, name: str) -> list[Document]:
    return [f for f in gateway.findings() if f["reason"] == "BackendFailing" and f["object"].endswith(f"/{name}")]


def test_without_traffic_nothing_is_known_which_is_no_bad_news(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    alone = own()  # what fails at a backend of another test is bad news
    alone.standard()
    alone.start()
    alone.load("seen-none.yaml", *hop("seen-none", serve(issued()).port))
    assert alone.conditions("BackendTLSPolicy", "seen-none")["BackendConnected"][:2] == ("Unknown", "NotTried")
    status = alone.command("status", "--dir", str(alone.folder), "backendtlspolicy", "shop/seen-none", "--exit-code")
    assert status.returncode == 0, status


def test_a_success_shows_the_certificate_of_the_backend(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued("api.example", "other.example"))
    gateway.load("seen-good.yaml", *hop("seen-good", served.port))
    assert gateway.get("seen-good").status == 200
    assert connected(gateway, "seen-good", "True")[1] == "HandshakesSucceed"
    until(lambda: audited(gateway, "seen-good")["observed"]["handshakes"] == 1, "it is counted")
    leaf = shown(gateway, "seen-good")
    observed = audited(gateway, "seen-good")["observed"]
    assert observed["health"] == "working" and observed["tls_versions"] == ["TLSv1.3"]
    assert leaf["names"] == ["api.example", "other.example"]
    assert (leaf["subject"], leaf["issuer"]) == ("CN=backend", "CN=the policy's CA")
    assert leaf["not_after"] == pytest.approx((NOW + DAY).timestamp(), abs=2)
    assert abs(time.time() - observed["last_success"]) < 60
    assert not failing(gateway, "seen-good")


def test_envoy_keeps_only_the_statistics_of_a_hop_that_are_read(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    gateway.load("seen-counted.yaml", *hop("seen-counted", serve(issued()).port))
    assert gateway.get("seen-counted").status == 200
    (admin,) = gateway.root.glob(f"r/**/{folder_name('shop/web')}/admin.sock")
    counted = asyncio.run(Admin(admin).stats(r"^cluster\.shop/web/shop/seen-counted/"))
    (handshakes,) = [counted[name] for name in counted if name.endswith(".ssl.handshake")]
    assert handshakes == 1
    assert [name for name in counted if not re.search(HOP_STATS, name)] == []


def test_plaintext_that_worked_is_no_handshake_of_the_policy_that_comes_after_it(
    gateway: Lasthop, serve: Callable[..., Backend]
) -> None:
    """The backend speaks plaintext, so that under the policy every handshake fails; before, every request succeeds."""
    path, served = "seen-after", serve(None)
    gateway.load("seen-after.yaml", *docs.hop(path, served.port))
    for _ in range(5):
        assert gateway.get(path).status == 200
    until(lambda: (traffic := seen(gateway, path)) and traffic["figures"]["requests"] == 5, "the requests are counted")
    gateway.load("seen-after.yaml", *hop(path, served.port))
    assert gateway.conditions("BackendTLSPolicy", path)["BackendConnected"][:2] == ("Unknown", "NotTried")
    assert gateway.get(path).status == 503
    assert connected(gateway, path, "False")[1] == "HandshakeFailed"
    # Another policy of the same name, under which nothing was tried.
    gateway.load("seen-after.yaml", *hop(path, served.port, "other.example"))
    assert gateway.conditions("BackendTLSPolicy", path)["BackendConnected"][:2] == ("Unknown", "NotTried")


FAILURES: dict[str, tuple[Callable[[], ssl.SSLContext], str, str]] = {
    "wrong-ca": (lambda: issued(issuer=OTHER_CA), "HandshakeFailed", "certificate is signed by an unknown CA"),
    "wrong-name": (lambda: issued("old.example"), "HandshakeFailed", "certificate is for old.example, policy shop/seen-"),
    "expired": (
        lambda: issued(valid=(NOW - 2 * DAY, NOW - DAY)),
        "HandshakeFailed",
        "certificate has expired",
    ),
    "wants-client-certificate": (
        lambda: asking(ssl.CERT_REQUIRED),
        "HandshakeFailed",
        "backend closed the connection before it responded (with TLS 1.3",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_view_reports_a_failing_handshake(gateway: Lasthop, serve: Callable[..., Backend], case: str) -> None:
    context, reason, words = FAILURES[case]
    name = f"seen-{case}"
    served = serve(context())
    gateway.load(f"{name}.yaml", *hop(name, served.port))
    assert gateway.get(name).status == 503
    said = connected(gateway, name, "False", words)
    assert said[1] == reason
    assert said[2].startswith(f"Service shop/{name}:443 (127.0.0.1:{served.port}): {words}")
    (finding,) = failing(gateway, name)
    assert words in finding["message"] and finding["remedy"].endswith(f"lasthop probe shop/{name}")
    observed = audited(gateway, name)["observed"]
    assert observed["health"] == "failing" and observed["failures"][0]["words"].startswith(words)
    status = gateway.command("status", "--dir", str(gateway.folder), "backendtlspolicy", f"shop/{name}", "--exit-code")
    assert status.returncode == 1 and words in " ".join(status.stdout.split())


def test_plaintext_instead_of_tls_is_reported(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(None)
    gateway.load("seen-plain.yaml", *hop("seen-plain", served.port))
    assert gateway.get("seen-plain").status == 503
    connected(gateway, "seen-plain", "False", "does not speak TLS")


def test_a_refused_connection_is_no_failed_handshake(gateway: Lasthop) -> None:
    gateway.load("seen-refused.yaml", *hop("seen-refused", free_port()))
    assert gateway.get("seen-refused").status == 503
    assert connected(gateway, "seen-refused", "False")[1] == "ConnectionFailed"


def test_a_service_without_endpoints_is_failing_until_it_has_one(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    whole = hop("seen-empty", serve(issued()).port)
    gateway.load("seen-empty.yaml", *(document for document in whole if document["kind"] != "EndpointSlice"))
    assert gateway.get("seen-empty").status == 503
    said = connected(gateway, "seen-empty", "False")
    assert said[1:] == ("ConnectionFailed", "Service shop/seen-empty:443: backend has no ready endpoint")
    gateway.load("seen-empty.yaml", *whole)
    connected(gateway, "seen-empty", "Unknown")
    assert gateway.get("seen-empty").status == 200
    connected(gateway, "seen-empty", "True")


def test_a_port_without_a_policy_where_nothing_listens_is_a_finding_on_the_service(gateway: Lasthop) -> None:
    gateway.load("seen-dead.yaml", *docs.hop("seen-dead", free_port()))
    assert gateway.get("seen-dead").status == 503
    (finding,) = until(lambda: failing(gateway, "seen-dead"), "a finding")
    assert finding["object"] == "Service shop/seen-dead" and "connection refused" in finding["message"]


def test_the_backends_own_errors_are_no_failure_of_the_connection(gateway: Lasthop) -> None:
    with echo("seen-500", issued()) as served:
        served.plan = "500"
        gateway.load("seen-500.yaml", *hop("seen-500", served.port))
        for _ in range(5):
            assert gateway.get("seen-500").status == 500
        connected(gateway, "seen-500", "True")


def test_one_of_two_endpoints_is_bad(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    good, bad = serve(issued()), serve(issued("old.example"))
    name = "seen-half"
    rest = (document for document in hop(name, good.port) if document["kind"] != "EndpointSlice")
    gateway.load(f"{name}.yaml", *rest, *docs.endpoints(name, good.port, bad.port))

    def asked_both() -> Condition:
        gateway.get(name)
        said = gateway.conditions("BackendTLSPolicy", name)["BackendConnected"]
        assert said[0] == "False" and "certificate is for another name" in said[2], said
        return said

    said = until(asked_both)
    assert said[2].startswith(f"1 of 2 endpoints of Service shop/{name}:443 (127.0.0.1:{bad.port}): ")
    assert audited(gateway, name)["observed"]["health"] == "partly failing"


def test_a_backend_that_is_repaired_recovers_with_the_first_success(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued("old.example"))
    gateway.load("seen-repaired.yaml", *hop("seen-repaired", served.port))
    assert gateway.get("seen-repaired").status == 503
    connected(gateway, "seen-repaired", "False")
    served.context = issued()
    assert gateway.get("seen-repaired").status == 200
    connected(gateway, "seen-repaired", "True")
    until(lambda: not failing(gateway, "seen-repaired"), "the finding is gone")


def test_an_edit_of_the_policy_makes_what_was_seen_before_meaningless(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued("old.example"))
    gateway.load("seen-edited.yaml", *hop("seen-edited", served.port))
    assert gateway.get("seen-edited").status == 503
    connected(gateway, "seen-edited", "False")
    gateway.load("seen-edited.yaml", *hop("seen-edited", served.port, "old.example"))
    connected(gateway, "seen-edited", "Unknown")
    assert gateway.get("seen-edited").status == 200
    connected(gateway, "seen-edited", "True")


def test_requests_are_counted_by_route_and_hop(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> None:
    """On a separate gateway: a shared one may have so many requests that only a part is logged."""
    served, gateway = serve(issued()), own()
    gateway.standard()
    gateway.start()
    gateway.load("seen-counted.yaml", *hop("seen-counted", served.port))
    for _ in range(7):
        assert gateway.get("seen-counted").status == 200

    def counted() -> Document | None:
        traffic = seen(gateway, "seen-counted")
        return traffic if traffic and traffic["figures"]["requests"] == 7 else None

    figures = until(counted, "seven requests")["figures"]
    assert figures["codes"]["2xx"] == 7 and figures["p99"] > 0
    routes = json.loads(gateway.ask("/api/traffic")[1])["routes"]
    (route,) = (route_report for route_report in routes if route_report["route"] == "HTTPRoute shop/seen-counted")
    assert route["figures"]["requests"] == 7


UPGRADE = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"


def test_a_websocket_is_seen_while_it_lasts(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(with_alpn(issued(), "h2", "http/1.1"))
    gateway.load("seen-ws.yaml", *hop("seen-ws", served.port))
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
        client.sendall(f"GET / HTTP/1.1\r\nhost: seen-ws.test\r\n{UPGRADE}\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 101 ")
        connected(gateway, "seen-ws", "True")

        def open_one() -> bool:
            traffic = seen(gateway, "seen-ws")
            return traffic is not None and traffic["figures"]["active"] == 1

        until(open_one, "one is open")


def test_a_failing_upgrade_is_separate_from_successful_requests(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(with_alpn(issued(), "h2"), h2_only=True)
    gateway.load("seen-h2.yaml", *hop("seen-h2", served.port))
    assert gateway.get("seen-h2").status == 200
    connected(gateway, "seen-h2", "True")
    until(lambda: gateway.get("seen-h2", headers={"connection": "upgrade", "upgrade": "websocket"}).status == 503)
    assert connected(gateway, "seen-h2", "False", "upgrades")[2].endswith("(only upgrades (WebSocket))")


@pytest.mark.parametrize("good", [True, False])
def test_grpc_calls_are_seen(gateway: Lasthop, good: bool) -> None:
    name = f"seen-grpc-{good}".lower()
    leaf = Certificate("grpc", CA, sans=dns("api.example" if good else "old.example"))
    with server(name, leaf) as served:
        gateway.load(
            f"{name}.yaml",
            docs.config_map("grpc-ca", CA.pem),
            docs.service(name),
            *docs.endpoints(name, served.port),
            docs.policy(name, "api.example", "grpc-ca"),
            grpc_route(name, grpc_rule(docs.to(name))),
        )
        assert (call(gateway, f"{name}.test").code is grpc.StatusCode.OK) is good
        connected(gateway, name, str(good), "" if good else "certificate is for old.example")
    until(lambda: seen(gateway, name, "h2"), "its hop has figures")


@pytest.mark.parametrize("retry", [{}, {"retry": {"attempts": 3}}], ids=["default", "own"])
def test_an_endpoint_that_retries_hide_is_known_by_the_counters_and_ejected(
    gateway: Lasthop, serve: Callable[..., Backend], retry: Document
) -> None:
    good, bad, name = serve(issued()), serve(issued("old.example")), f"seen-retried-{len(retry)}"
    retried = rules(name, rule("/", to=[docs.to(name)], **retry))
    rest = (document for document in hop(name, good.port) if document["kind"] not in ("EndpointSlice", "HTTPRoute"))
    gateway.load(f"{name}.yaml", *rest, *docs.endpoints(name, good.port, bad.port), retried)

    def asked_often() -> Condition:
        assert gateway.get(name).status == 200
        said = gateway.conditions("BackendTLSPolicy", name)["BackendConnected"]
        assert said[0] == "False" and "ejected" in said[2], said
        return said

    said = until(asked_often)
    where = f"1 of 2 endpoints of Service shop/{name}:443 (127.0.0.1:{bad.port})"
    why = "certificate is for another name than the policy wants (from Envoy's counters, without details)"
    assert said[1:] == ("HandshakeFailed", f"{where}: {why} (ejected: no traffic for 30 s at a time)")
    assert [finding["message"] for finding in failing(gateway, name)] == [f"at Gateway shop/web: {said[2]}."]
    ((endpoint, since),) = audited(gateway, name)["observed"]["ejected"]
    assert endpoint == f"127.0.0.1:{bad.port}" and abs(time.time() - since) < 60


COUNTED: dict[str, tuple[Callable[[], ssl.SSLContext] | None, str]] = {
    "wrong-name": (lambda: issued("old.example"), "certificate is for another name than the policy wants"),
    "wrong-ca": (lambda: issued(issuer=OTHER_CA), "certificate was not accepted: it is signed by an unknown CA"),
    "plaintext": (None, "TLS handshake failed: the backend does not speak TLS on this port"),
}


def test_mirrors_and_auth_servers_that_fail_are_known_by_the_counters(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    expected = {}
    for filter, case in itertools.product(("mirror", "auth"), COUNTED):
        context, words = COUNTED[case]
        name, asked = f"seen-{filter}-{case}", f"seen-{filter}-{case}-to"
        good, bad = serve(issued()), serve(context() if context else None)
        used = mirror(asked, 443) if filter == "mirror" else external_auth("HTTP", asked)
        route = rules(name, rule("/", used, to=[docs.to(name)]))
        rest = (document for document in hop(name, good.port) if document["kind"] != "HTTPRoute")
        server = (document for document in hop(asked, bad.port) if document["kind"] != "HTTPRoute")
        gateway.load(f"{name}.yaml", *rest, *server, route)
        status = 200 if filter == "mirror" else 503
        expected[name] = (asked, status, f"Service shop/{asked}:443 (127.0.0.1:{bad.port}): {words}")

    def asked_often() -> dict[str, Condition]:
        assert all(gateway.get(name).status == status for name, (_, status, _) in expected.items())
        said = {
            name: gateway.conditions("BackendTLSPolicy", asked)["BackendConnected"] for name, (asked, _, _) in expected.items()
        }
        assert all(condition[0] == "False" for condition in said.values()), said
        return said

    for name, (_, reason, message) in until(asked_often).items():
        assert reason == "HandshakeFailed" and expected[name][2] in message


# --- streams ---------------------------------------------------------------------------------------------------------


class Streams(NamedTuple):
    lasthop: Lasthop
    tls: int
    tcp: int


@pytest.fixture(scope="module")
def streams(module_own: Callable[..., Lasthop]) -> Streams:
    made = Streams(module_own(), free_port(), free_port())
    names = dns("good.test", "bad.test", "mtls.test", "left.test", "two.test")
    own = Certificate("gateway", CA, sans=names)
    made.lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.gateway(
            "web",
            docs.http(made.lasthop.port),
            docs.listener("ends", "TLS", made.tls, secret="own"),
            docs.listener("tcp", "TCP", made.tcp),
        ),
        docs.secret("own", tls_crt=own.pem, tls_key=own.key_pem),
        docs.config_map("ca", CA.pem),
    )
    made.lasthop.start()
    return made


def stream(streams: Streams, kind: str, name: str, port: int, *hosts: str) -> None:
    listener = "ends" if kind == "TLSRoute" else "tcp"
    streams.lasthop.load(
        f"{name}.yaml",
        docs.service(name),
        *docs.endpoints(name, port),
        docs.policy(name, "api.example", "ca"),
        docs.stream_route(kind, name, docs.to(name), listener=listener, hosts=hosts),
    )


def test_a_tls_route_that_ends_tls_shows_the_backends_certificate(streams: Streams, serve: Callable[..., Backend]) -> None:
    stream(streams, "TLSRoute", "good", serve(issued(), name="good").port, "good.test")
    assert asked(streams.tls, "good.test") == "good"
    connected(streams.lasthop, "good", "True")
    assert shown(streams.lasthop, "good")["names"] == ["api.example"]

    def counted() -> bool:
        traffic = seen(streams.lasthop, "good", "tcp")
        return traffic is not None and traffic["figures"]["codes"]["2xx"] == 1

    until(counted, "its connection is counted")


def test_a_tls_route_whose_backend_does_not_fit_is_failing(streams: Streams, serve: Callable[..., Backend]) -> None:
    stream(streams, "TLSRoute", "bad", serve(issued("old.example")).port, "bad.test")
    assert asked(streams.tls, "bad.test") == ""
    connected(streams.lasthop, "bad", "False", "certificate is for old.example")


def test_a_tls_route_whose_backend_wants_a_client_certificate_is_failing(
    streams: Streams, serve: Callable[..., Backend]
) -> None:
    stream(streams, "TLSRoute", "mtls", serve(asking(ssl.CERT_REQUIRED)).port, "mtls.test")
    assert asked(streams.tls, "mtls.test") == ""
    assert connected(streams.lasthop, "mtls", "False", "wants a client certificate")[1] == "HandshakeFailed"


def test_a_client_that_leaves_at_once_is_not_a_failure_of_the_backend(streams: Streams, serve: Callable[..., Backend]) -> None:
    stream(streams, "TLSRoute", "left", serve(issued(), name="left").port, "left.test")
    for _ in range(5):
        opened(streams.tls, "left.test").close()
    before = len((streams.lasthop.root / "out").read_text())
    until(lambda: "left" in (streams.lasthop.root / "out").read_text()[-before:], "a line of such a connection")
    until(lambda: seen(streams.lasthop, "left", "tcp"), "its hop is known")
    assert asked(streams.tls, "left.test") == "left"
    connected(streams.lasthop, "left", "True")
    traffic = seen(streams.lasthop, "left", "tcp")
    assert traffic and [endpoint["failures"] for endpoint in traffic["endpoints"]] == [0]


def test_a_tcp_route_is_seen_while_its_connection_lasts(streams: Streams, serve: Callable[..., Backend]) -> None:
    served = serve(issued(), name="database")
    stream(streams, "TCPRoute", "database", served.port)
    assert asked(streams.tcp) == "database"
    connected(streams.lasthop, "database", "True")
    served.close()
    for _ in range(2):
        assert asked(streams.tcp) == ""
    said = connected(streams.lasthop, "database", "False")
    assert said[1] == "ConnectionFailed"


def test_an_endpoint_that_a_stream_passes_over_is_known_by_the_counters(
    streams: Streams, serve: Callable[..., Backend]
) -> None:
    good, bad, name = serve(issued(), name="left"), serve(issued("old.example")), "passed-over"
    streams.lasthop.load(
        f"{name}.yaml",
        docs.service(name),
        *docs.endpoints(name, good.port, bad.port),
        docs.policy(name, "api.example", "ca"),
        docs.stream_route("TLSRoute", name, docs.to(name), listener="ends", hosts=("two.test",)),
    )

    def asked_often() -> Condition:
        assert asked(streams.tls, "two.test") == "left"
        said = streams.lasthop.conditions("BackendTLSPolicy", name)["BackendConnected"]
        assert said[0] == "False" and "ejected" in said[2], said
        return said

    where = f"1 of 2 endpoints of Service shop/{name}:443 (127.0.0.1:{bad.port})"
    assert until(asked_often)[2].startswith(f"{where}: certificate is for another name")
    traffic = seen(streams.lasthop, name, "tcp")
    assert (
        traffic
        and {endpoint["address"]: endpoint["failures"] for endpoint in traffic["endpoints"]}[f"127.0.0.1:{good.port}"] == 0
    )
