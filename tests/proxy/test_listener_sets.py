"""ListenerSets: another team's listeners are added and removed, and all other connections stay open."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial

from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop

EDGE = Certificate("edge", CA, sans=dns("api.test"))
TEAM = Certificate("team", CA, sans=dns("team.test"))
TRUSTING = ssl.create_default_context(cadata=CA.pem)


@contextlib.contextmanager
def connected(port: int, host: str, *, tls: bool) -> Iterator[Callable[[], int]]:
    """Opens one connection. The yielded function sends another request on it, and fails if the gateway has closed it or is
    about to."""
    connection = http.client.HTTPConnection(host, port)
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sock = TRUSTING.wrap_socket(plain, server_hostname=host) if tls else plain
    connection.auto_open = False

    def ask() -> int:
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        assert response.getheader("connection") != "close", "the gateway drains the connection"
        return response.status

    with contextlib.closing(connection):
        yield ask


def answers(port: int, host: str, status: int, *, tls: bool) -> bool:
    try:
        with connected(port, host, tls=tls) as ask:
            return ask() == status
    except OSError:
        return False


def test_a_listener_set_comes_and_goes_and_no_other_connection_is_drained(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop, secure, extra, served = own(), free_port(), free_port(), serve(issued())
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.gateway(
            "web",
            {**docs.http(lasthop.port), "hostname": "*.test"},
            docs.https(secure, "edge", "api.test"),
            allowedListeners={"namespaces": {"from": "All"}},
        ),
        docs.key_pair("edge", EDGE),
        docs.config_map("ca", CA.pem),
        *docs.hop("api", served.port, docs.policy("api", "api.example", "ca")),
    )
    lasthop.start()
    until(lambda: answers(secure, "api.test", 200, tls=True))
    listeners = [
        {"name": "http", "port": lasthop.port, "protocol": "HTTP", "hostname": "team.test"},
        {"name": "extra", "port": extra, "protocol": "HTTP"},
        {**docs.https(secure, "team", "team.test"), "name": "https"},
    ]
    route = docs.route("team/team", docs.to("api", namespace="shop"))
    route["spec"]["parentRefs"] = [{"kind": "ListenerSet", "name": "team"}]
    with connected(lasthop.port, "api.test", tls=False) as plain, connected(secure, "api.test", tls=True) as secured:
        assert (plain(), secured()) == (200, 200)
        lasthop.write(
            "team.yaml",
            docs.obj(
                docs.GATEWAY_API,
                "ListenerSet",
                "team/team",
                spec={"parentRef": {"name": "web", "namespace": "shop"}, "listeners": listeners},
            ),
            docs.key_pair("team/team", TEAM),
            docs.grant("team", "HTTPRoute", "team", "Service"),
            route,
        )
        for port, tls in ((lasthop.port, False), (extra, False), (secure, True)):
            until(partial(answers, port, "team.test", 200, tls=tls))
        assert (plain(), secured()) == (200, 200)
        status = lasthop.object("ListenerSet", "team/team")["status"]
        assert {c["status"] for c in status["conditions"]} == {"True"}
        assert [(x["name"], x["attachedRoutes"]) for x in status["listeners"]] == [("http", 1), ("extra", 1), ("https", 1)]
        assert lasthop.object("Gateway", "web")["status"]["attachedListenerSets"] == 1

        (lasthop.folder / "team.yaml").unlink()
        until(lambda: not answers(secure, "team.test", 200, tls=True))
        until(lambda: answers(lasthop.port, "team.test", 404, tls=False))
        assert (plain(), secured()) == (200, 200)


def test_a_listener_that_loses_its_certificate_is_closed_and_leaves_its_name_to_nobody(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    """The certificate of a wildcard listener fits the name, so that it could answer in its place."""
    lasthop, secure, served = own(), free_port(), serve(issued())
    wild, narrow = Certificate("wild", CA, sans=dns("*.w.test")), Certificate("narrow", CA, sans=dns("api.w.test"))
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.gateway(
            "web",
            docs.http(lasthop.port),
            docs.https(secure, "wild", "*.w.test"),
            {**docs.https(secure, "narrow", "api.w.test"), "name": "narrow"},
        ),
        docs.key_pair("wild", wild),
        docs.config_map("ca", CA.pem),
        *docs.hop("api", served.port, docs.policy("api", "api.example", "ca"), host="*.w.test"),
    )
    lasthop.write("narrow.yaml", docs.key_pair("narrow", narrow))
    lasthop.start()
    until(lambda: answers(secure, "api.w.test", 200, tls=True))
    assert answers(secure, "other.w.test", 200, tls=True)
    lasthop.write("narrow.yaml", docs.secret("narrow", tls_crt=narrow.pem, tls_key=wild.key_pem))
    until(lambda: _closed(secure, "api.w.test"))
    assert answers(secure, "other.w.test", 200, tls=True)


def _closed(port: int, host: str) -> bool:
    """Whether the gateway ends the connection before any certificate is shown."""
    try:
        with connected(port, host, tls=True):
            return False
    except (ssl.SSLEOFError, ConnectionResetError):
        return True
