"""Redirects: the Location that a client is sent to, by the spec's rules for scheme, hostname, port and path."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.documents import Document
from tests.proxy.echo import PREFIX_TABLE, Said, ask, full_path, prefix_path, redirect, replacing, rule, rules
from tests.proxy.h2 import client_context
from tests.proxy.lasthop import Lasthop

HOST = "redirects.test"

# path: the rule's redirect, and the Location on an HTTP listener ("PORT": the listener's own)
WANTED: dict[str, tuple[Document, str]] = {
    "/nothing": ({}, f"http://{HOST}:PORT/nothing"),
    "/hostname": ({"hostname": "example.org"}, "http://example.org:PORT/hostname"),
    "/hostname-and-80": ({"hostname": "example.org", "port": 80}, "http://example.org/hostname-and-80"),
    "/port-80": ({"port": 80}, f"http://{HOST}/port-80"),
    "/port-8080": ({"port": 8080}, f"http://{HOST}:8080/port-8080"),
    "/https": ({"scheme": "https"}, f"https://{HOST}/https"),
    "/https-443": ({"scheme": "https", "port": 443}, f"https://{HOST}/https-443"),
    "/https-8443": ({"scheme": "https", "port": 8443}, f"https://{HOST}:8443/https-8443"),
    "/http": ({"scheme": "http"}, f"http://{HOST}/http"),
    "/http-443": ({"scheme": "http", "port": 443}, f"http://{HOST}:443/http-443"),
    "/full": ({"path": full_path("/x%20y")}, f"http://{HOST}:PORT/x%20y"),
    "/full-empty": ({"path": full_path("")}, f"http://{HOST}:PORT/"),
    "/no-slash": ({"path": full_path("there")}, f"http://{HOST}:PORT/there"),
    "/prefix": ({"path": prefix_path("/x"), "scheme": "https"}, f"https://{HOST}/x"),
    "/backslash": ({"path": prefix_path("/%5C1")}, f"http://{HOST}:PORT/%5C1"),
}
CODES = (301, 302, 303, 307, 308)


@pytest.fixture(scope="module")
def redirecting(module_own: Callable[..., Lasthop]) -> Iterator[tuple[Lasthop, int]]:
    """With an HTTP and an HTTPS listener."""
    lasthop, port = module_own(), free_port()
    shown = Certificate("listener", CA, sans=dns(HOST))
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.key_pair("shown", shown),
        docs.gateway("web", docs.http(lasthop.port), docs.https(port, "shown")),
        *docs.hop("first", 9),
        rules("redirects", *(rule(path, redirect(**wanted)) for path, (wanted, _) in WANTED.items())),
        rules("codes", *(rule(f"/{code}", redirect(statusCode=code)) for code in CODES)),
    )
    lasthop.start()
    lasthop.settle()
    yield lasthop, port
    assert "refused configuration" not in lasthop.log


def location(answer: Said) -> str:
    assert answer.status in CODES
    return str(answer.headers["location"])


@pytest.mark.parametrize("path", WANTED)
def test_a_redirect_leads_where_the_spec_says(redirecting: tuple[Lasthop, int], path: str) -> None:
    lasthop, _ = redirecting
    expected = WANTED[path][1].replace("PORT", str(lasthop.port))
    assert location(ask(lasthop, HOST, path)) == expected
    assert location(ask(lasthop, HOST, f"{path}?a=1&b=%25")) == f"{expected}?a=1&b=%25"


@pytest.mark.parametrize("path", WANTED)
def test_a_port_in_the_host_header_does_not_get_into_the_location(redirecting: tuple[Lasthop, int], path: str) -> None:
    """A scheme's own port may be written out."""
    lasthop, _ = redirecting
    expected = WANTED[path][1].replace("PORT", str(lasthop.port))
    target = location(ask(lasthop, f"{HOST}:4711", path))
    own = {"http": ":80/", "https": ":443/"}[target.partition(":")[0]]
    assert target.replace(own, "/") == expected


def test_an_https_listener_leads_back_to_itself_unless_a_scheme_is_given(redirecting: tuple[Lasthop, int]) -> None:
    lasthop, port = redirecting
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    assert location(ask(lasthop, HOST, "/nothing", port=port, tls=context)) == f"https://{HOST}:{port}/nothing"
    assert location(ask(lasthop, HOST, "/https", port=port, tls=context)) == f"https://{HOST}/https"
    assert location(ask(lasthop, HOST, "/http", port=port, tls=context)) == f"http://{HOST}/http"
    assert location(ask(lasthop, HOST, "/port-8080", port=port, tls=context)) == f"https://{HOST}:8080/port-8080"


@pytest.mark.parametrize("code", CODES)
def test_a_redirect_has_the_configured_code(redirecting: tuple[Lasthop, int], code: int) -> None:
    assert ask(redirecting[0], "codes.test", f"/{code}/x", method="POST").status == code


def test_a_prefix_is_replaced_by_the_specs_table(redirecting: tuple[Lasthop, int]) -> None:
    lasthop, _ = redirecting
    lasthop.load("table.yaml", *replacing(redirect))
    locations = [location(ask(lasthop, f"table-{n}.test", f"{path}?q=/foo")) for n, (path, *_) in enumerate(PREFIX_TABLE)]
    assert locations == [f"http://table-{n}.test:{lasthop.port}{wanted}?q=/foo" for n, (*_, wanted) in enumerate(PREFIX_TABLE)]
