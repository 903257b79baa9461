"""Filters of listeners with a real Envoy: only the listener with the filter queries its servers, before it chooses a route."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator

import pytest

from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.auth_server import AuthServer, auth_server
from tests.proxy.certs import CA, HOSTNAME, issued
from tests.proxy.documents import Document
from tests.proxy.echo import Echo, ask, echo, external_auth, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

PASS, KNOWN = {"x-token": "good"}, {"x-token": "good", "x-plan": "200"}
GUARDED = "guarded.test"


class Site:
    """A port with two listeners: `guarded.test`, which queries the servers, and the rest of `*.test`, which does not."""

    def __init__(self, lasthop: Lasthop, backend: Echo, http: Echo, grpc: AuthServer) -> None:
        self.lasthop, self.backend, self.http, self.grpc = lasthop, backend, http, grpc

    def guard(self, *filters: Document) -> None:
        guarded = {**docs.http(self.lasthop.port, "guarded"), "hostname": GUARDED, "filters": {"requests": list(filters)}}
        if not filters:
            del guarded["filters"]
        self.lasthop.load("gateway.yaml", *standing(docs.gateway("web", docs.http(self.lasthop.port), guarded)))


def standing(gateway: Document) -> list[Document]:
    return [docs.gateway_class(), docs.namespace("shop"), gateway, *docs.hop("first", 9)]


def secured(name: str, port: int, ca: str = "ca") -> list[Document]:
    return [docs.service(name), *docs.endpoints(name, port), docs.policy(name, HOSTNAME, ca)]


@pytest.fixture(scope="module")
def site(module_own: Callable[..., Lasthop]) -> Iterator[Site]:
    lasthop = module_own()
    certificate = Certificate("auth", CA, sans=dns(HOSTNAME))
    with echo("main") as main, echo("auth", issued()) as http, auth_server(certificate) as grpc:
        http.response_headers = [("x-role", "admin"), ("host", "open.test")]
        lasthop.write("gateway.yaml", *standing(docs.gateway("web", docs.http(lasthop.port))))
        lasthop.write("cas.yaml", docs.config_map("ca", CA.pem))
        lasthop.write("servers.yaml", *secured("auth-http", http.port), *secured("auth-grpc", grpc.port))
        lasthop.write("backends.yaml", *service("main", main.port))
        plain = rule("/a", to=[to("main")])
        lasthop.write("routes.yaml", rules("guarded", plain, host=GUARDED), rules("open", plain, host="open.test"))
        lasthop.start()
        yield Site(lasthop, main, http, grpc)
        assert "refused configuration" not in lasthop.log


def test_every_request_of_the_listener_is_authorized_and_none_of_another(site: Site) -> None:
    site.guard(external_auth("GRPC", "auth-grpc"))
    seen = ask(site.lasthop, GUARDED, "/a", headers=PASS).seen
    assert (seen["backend"], seen["headers"]["x-user"]) == ("main", "anna")
    assert ask(site.lasthop, GUARDED, "/a").status == 402
    asked = len(site.grpc.asked)
    assert ask(site.lasthop, "open.test", "/a").seen["backend"] == "main"
    assert len(site.grpc.asked) == asked
    # Without a matching route, the server is queried all the same.
    assert ask(site.lasthop, GUARDED, "/nowhere").status == 402
    assert ask(site.lasthop, GUARDED, "/nowhere", headers=PASS).status == 404
    assert site.grpc.asked[-1].path == "/nowhere"
    told = json.dumps(site.lasthop.explained("GET", f"http://{GUARDED}:{site.lasthop.port}/a"))
    assert "authorizes each request, before routing, at Service shop/auth-grpc" in told


def test_several_servers_are_queried_in_order_and_the_first_denial_decides(site: Site) -> None:
    site.guard(external_auth("HTTP", "auth-http", allowedHeaders=["x-plan", "x-user"]), external_auth("GRPC", "auth-grpc"))
    seen = ask(site.lasthop, GUARDED, "/a", headers=KNOWN).seen
    assert (seen["headers"]["x-role"], seen["headers"]["x-user"]) == ("admin", "anna")
    assert site.grpc.asked[-1].headers["x-role"] == "admin", "the second is told what the first has added"
    asked = len(site.grpc.asked)
    assert ask(site.lasthop, GUARDED, "/a", headers={**PASS, "x-plan": "403"}).status == 403
    assert len(site.grpc.asked) == asked
    site.guard(external_auth("GRPC", "auth-grpc"), external_auth("HTTP", "auth-http", allowedHeaders=["x-user"]))
    assert ask(site.lasthop, GUARDED, "/a", headers=PASS).seen["backend"] == "main"
    assert site.http.asked(GUARDED)[-1]["headers"]["x-user"] == "anna"


def test_headers_that_a_server_adds_select_the_route_with_its_filters_and_the_host_stays(site: Site) -> None:
    site.guard(external_auth("HTTP", "auth-http"))
    known = {"matches": [{"path": {"value": "/a"}, "headers": [{"name": "x-role", "value": "admin"}]}]}
    asking = {**rule("/a", external_auth("GRPC", "auth-grpc"), to=[to("main")]), **known}
    site.lasthop.load("routes-by-role.yaml", rules("by-role", asking, host=GUARDED))
    try:
        assert ask(site.lasthop, GUARDED, "/a").status == 402, "the filter of the route that the answer led to"
        seen = ask(site.lasthop, GUARDED, "/a", headers=PASS).seen
        assert (seen["host"], seen["headers"]["x-user"]) == (GUARDED, "anna")
        assert ask(site.lasthop, "open.test", "/a", headers={"x-role": "admin"}).seen["backend"] == "main"
    finally:
        (site.lasthop.folder / "routes-by-role.yaml").unlink()


def test_an_edit_holds_on_connections_that_are_open(site: Site) -> None:
    site.guard()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.lasthop.port, timeout=15)) as connection:

        def status() -> int:
            connection.request("GET", "/a", headers={"Host": GUARDED})
            response = connection.getresponse()
            response.read()
            return response.status

        assert status() == 200
        opened = connection.sock
        site.guard(external_auth("GRPC", "auth-grpc"))
        assert status() == 402
        assert connection.sock is opened


def test_an_https_listener_for_every_name_authorizes_names_without_a_route_too(site: Site) -> None:
    port, any_name = free_port(), ssl.create_default_context(cadata=CA.pem)
    any_name.check_hostname = False
    asking = {**docs.https(port, "own"), "filters": {"requests": [external_auth("GRPC", "auth-grpc")]}}
    gateway = docs.gateway("web", docs.http(site.lasthop.port), asking)
    own = docs.key_pair("own", Certificate("gateway", CA, sans=dns("own.test")))
    site.lasthop.load("gateway.yaml", *standing(gateway), own)
    for host, path, status in ((GUARDED, "/a", 200), (GUARDED, "/nowhere", 404), ("nobody.test", "/a", 404)):
        assert ask(site.lasthop, host, path, port=port, tls=any_name).status == 402
        assert ask(site.lasthop, host, path, port=port, tls=any_name, headers=PASS).status == status
    assert ask(site.lasthop, GUARDED, "/a").status == 200, "by the listener that does not ask"


@pytest.mark.parametrize("flaw", ["missing bundle", "nobody"])
def test_an_unreachable_server_closes_the_listener_and_no_other(site: Site, flaw: str) -> None:
    with echo("unsafe", issued()) as unsafe:
        site.lasthop.write("unsafe.yaml", *secured("unsafe", unsafe.port, "missing"))
        site.guard(external_auth("HTTP", "unsafe" if flaw == "missing bundle" else "nobody"))
        for path in ("/a", "/nowhere"):
            assert ask(site.lasthop, GUARDED, path, headers=PASS).status == 503
        assert ask(site.lasthop, "open.test", "/a").seen["backend"] == "main"
        assert unsafe.seen == []
        assert site.lasthop.explained("GET", f"http://{GUARDED}:{site.lasthop.port}/a")["status"] == 503
        (listener,) = (x for x in site.lasthop.object("Gateway", "web")["status"]["listeners"] if x["name"] == "guarded")
        (resolved,) = (x for x in listener["conditions"] if x["type"] == "ResolvedRefs")
        reason = "BackendNotFound" if flaw == "nobody" else "InvalidBackendTLS"
        assert (resolved["status"], resolved["reason"]) == ("False", reason)
