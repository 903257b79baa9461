"""CORS: the expectations of upstream's HTTPRouteCORS, and further rules of the spec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy.documents import Document
from tests.proxy.echo import Echo, ask, cors, echo, rule, rules, service, to
from tests.proxy.lasthop import Lasthop

HOST = "cors.test"
FOO = "https://www.foo.com"
RULES: dict[str, Document] = {
    "/listed": {
        "allowOrigins": [FOO, "https://*.bar.com", "https://*.port.com:8443"],
        "allowMethods": ["GET", "OPTIONS"],
        "allowHeaders": ["x-header-1", "x-header-2"],
        "exposeHeaders": ["x-header-3", "x-header-4"],
        "allowCredentials": True,
        "maxAge": 3600,
    },
    "/methods": {"allowOrigins": [FOO], "allowMethods": ["*"]},
    "/anybody": {"allowOrigins": ["*"], "allowMethods": ["PUT"], "allowCredentials": False},
    "/all": {
        "allowOrigins": ["*"],
        "allowMethods": ["*"],
        "allowHeaders": ["*"],
        "exposeHeaders": ["*"],
        "allowCredentials": True,
    },
    "/all-without": {"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"], "exposeHeaders": ["*"]},
}
LISTED = {
    "allow-methods": "GET, OPTIONS",
    "allow-headers": "x-header-1, x-header-2",
    "expose-headers": "x-header-3, x-header-4",
    "max-age": "3600",
    "allow-credentials": "true",
}


@pytest.fixture(scope="module")
def backend(gateway: Lasthop) -> Iterator[Echo]:
    with echo("shared") as running:
        listed = [rule(path, cors(**wanted), to=[to("cors")]) for path, wanted in RULES.items()]
        gateway.load("cors.yaml", *service("cors", running.port), rules("cors", *listed))
        yield running


def preflight(gateway: Lasthop, path: str, origin: str, method: str, headers: str = "") -> dict[str, str]:
    """The CORS headers of the answer, which the gateway itself must give."""
    wanted = {"origin": origin, "access-control-request-method": method}
    if headers:
        wanted["access-control-request-headers"] = headers
    answer = ask(gateway, HOST, path, method="OPTIONS", headers=wanted)
    assert (answer.status, answer.body) == (200, "")
    return cors_headers(dict(answer.headers))


def cors_headers(headers: dict[str, str]) -> dict[str, str]:
    start = "access-control-"
    return {name.removeprefix(start): value for name, value in headers.items() if name.startswith(start)}


@pytest.mark.parametrize("origin", [FOO, "https://www.bar.com", "https://xpto.www.bar.com", "https://a.port.com:8443"])
def test_a_preflight_from_an_allowed_origin_learns_all_that_is_allowed(gateway: Lasthop, backend: Echo, origin: str) -> None:
    headers = preflight(gateway, "/listed", origin, "GET", "x-header-1, x-header-2")
    assert headers == {"allow-origin": origin, **LISTED}
    assert backend.seen == [] or backend.seen[-1]["method"] != "OPTIONS"


@pytest.mark.parametrize(
    "origin", ["https://foobar.com", "http://www.foo.com", "https://bar.com.evil.com", "https://www.bar.com:8443", "null"]
)
def test_another_origin_is_not_allowed(gateway: Lasthop, backend: Echo, origin: str) -> None:
    assert "allow-origin" not in preflight(gateway, "/listed", origin, "GET")
    answer = ask(gateway, HOST, "/listed", headers={"origin": origin})
    assert answer.status == 200
    assert cors_headers(dict(answer.headers)) == {}


@pytest.mark.parametrize("origin", [FOO, "https://www.bar.com"])
def test_a_simple_request_from_an_allowed_origin_is_marked(gateway: Lasthop, backend: Echo, origin: str) -> None:
    answer = ask(gateway, HOST, "/listed", headers={"origin": origin})
    assert answer.seen["backend"] == "shared"
    headers = cors_headers(dict(answer.headers))
    assert headers == {"allow-origin": origin, "allow-credentials": "true", "expose-headers": "x-header-3, x-header-4"}


def test_all_methods_are_allowed_by_a_star(gateway: Lasthop, backend: Echo) -> None:
    headers = preflight(gateway, "/methods", FOO, "POST")
    assert headers == {"allow-origin": FOO, "allow-methods": "POST", "max-age": "5"}


@pytest.mark.parametrize("origin", ["https://foobar.com", "https://foobar.com:12345"])
def test_everybody_is_allowed_by_a_star(gateway: Lasthop, backend: Echo, origin: str) -> None:
    headers = preflight(gateway, "/anybody", origin, "PUT")
    assert headers == {"allow-origin": origin, "allow-methods": "PUT", "max-age": "5"}
    answer = ask(gateway, HOST, "/anybody", method="PUT", headers={"origin": origin})
    assert cors_headers(dict(answer.headers)) == {"allow-origin": origin}


def test_with_credentials_no_star_is_sent(gateway: Lasthop, backend: Echo) -> None:
    headers = preflight(gateway, "/all", "https://other.foo.com", "PUT", "x-header-1, x-header-2")
    assert headers == {
        "allow-origin": "https://other.foo.com",
        "allow-methods": "PUT",
        "allow-headers": "x-header-1, x-header-2",
        "allow-credentials": "true",
        "max-age": "5",
    }
    answer = ask(gateway, HOST, "/all", headers={"origin": "https://other.foo.com"})
    headers = cors_headers(dict(answer.headers))
    assert headers == {"allow-origin": "https://other.foo.com", "allow-credentials": "true"}


def test_without_credentials_there_is_no_header_about_them(gateway: Lasthop, backend: Echo) -> None:
    headers = preflight(gateway, "/all-without", "https://other.foo.com", "PUT", "x-header-1, x-header-2")
    assert "allow-credentials" not in headers
    assert headers["allow-headers"] in ("*", "x-header-1, x-header-2")
    answer = ask(gateway, HOST, "/all-without", headers={"origin": "https://other.foo.com"})
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["access-control-expose-headers"] == "*"
