"""`explain request` in small worlds; tests/proxy compares it with Envoy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lasthop.base.api.meta import Object
from lasthop.engine.outputs.explain.fact import Fact
from lasthop.engine.outputs.explain.request_answer import RequestAction, RequestAnswer
from lasthop.engine.outputs.explain.requests import explain_request
from lasthop.engine.plan.request import BadRequest, read_request
from lasthop.engine.resolve.routing.routes import PROTOCOLS
from tests.snapshot import settled
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
)

API = {"name": "api", "port": 443}
ADDRESSES = {"shop/web": "10.0.0.1", "a/other": "10.0.0.2"}
WORLD = (
    mk_class(),
    mk_gateway("shop/web"),
    mk_service("shop/api"),
    mk_slice("shop/api-1", "api", ["10.0.0.1"]),
    mk_policy("shop/p", "api", "api.internal", ["corp-ca"], created="2026-01-01T00:00:00Z"),
    mk_config_map("shop/corp-ca", ca_pem("Corp CA")),
)


def asked(url: str, *objects: Object, method: str = "GET", headers: tuple[str, ...] = ()) -> list[RequestAnswer]:
    engine = settled(keyed(*WORLD, *objects))[0]
    routes = [key for kind in PROTOCOLS for key in engine.store.keys(kind)]
    steps = explain_request(engine.graph, engine.store.keys("Gateway"), routes, read_request(method, url, headers))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return list(done.value)


def texts(fact: Fact) -> Iterator[str]:
    yield fact.text
    for cause in fact.because:
        yield from texts(cause)


def test_a_request_is_followed_to_a_backend_and_to_how_it_is_verified() -> None:
    (answer,) = asked("http://shop.example/cart?x=1", mk_route("shop/r", "shop/web", [API], ["shop.example"]))
    assert (answer.action, answer.route, answer.rule, answer.hostname) == (
        RequestAction.FORWARD,
        "HTTPRoute shop/r",
        0,
        "shop.example",
    )
    (share,) = answer.backends
    assert (share.backend, share.port, share.manner, share.policy) == ("Service shop/api", 443, "verified", "shop/p")
    lines = list(texts(answer.explanation))
    assert (
        lines[0]
        == "GET http://shop.example/cart?x=1 at Gateway shop/web: forwarded to Service shop/api:443 (must be verified)"
    )
    assert "TLS because of BackendTLSPolicy shop/p" in lines


@pytest.mark.parametrize(("app_protocol", "protocol"), [("", "auto"), ("kubernetes.io/h2c", "h1-upgrade")])
def test_a_request_for_an_upgrade_goes_over_a_hop_of_its_own_to_an_h2c_backend(app_protocol: str, protocol: str) -> None:
    ports = [{"name": "https", "port": 443, "appProtocol": app_protocol}]
    written = mk_route("shop/r", "shop/web", [API]), mk_service("shop/api", ports)
    (answer,) = asked("http://shop.example/ws", *written, headers=("Upgrade: websocket",))
    assert [share.protocol for share in answer.backends] == [protocol]


def test_shares_say_what_each_backend_gets_and_which_share_fails() -> None:
    backends = [{**API, "weight": 3}, {"name": "gone", "port": 443, "weight": 1}]
    (answer,) = asked("http://shop.example/", mk_route("shop/r", "shop/web", backends))
    assert [(share.share, share.status) for share in answer.backends] == [(0.75, 0), (0.25, 500)]
    assert "1 of 4 (25.0%) to Service shop/gone port 443: refused, Service shop/gone does not exist" in list(
        texts(answer.explanation)
    )


def test_a_match_that_comes_first_says_what_the_request_lacks() -> None:
    rules = [
        {"matches": [{"path": {"value": "/"}}], "backendRefs": [API]},
        {"matches": [{"path": {"value": "/"}, "headers": [{"name": "x-beta", "value": "1"}]}], "backendRefs": [API]},
    ]
    (answer,) = asked("http://shop.example/", mk_route("shop/r", "shop/web", [], rules=rules), headers=("x-beta: 2",))
    assert answer.rule == 0
    wanted = "not HTTPRoute shop/r rule 1: /* with header x-beta: 1, which comes first: header x-beta is '2', not '1'"
    assert wanted in list(texts(answer.explanation))


def test_a_404_names_the_route_that_is_not_attached() -> None:
    parents = [{"name": "web", "sectionName": "htp"}]
    (answer,) = asked("http://shop.example/", mk_route("shop/r", "shop/web", [API], ["shop.example"], parents=parents))
    assert answer.status == 404
    assert any(
        text.startswith("HTTPRoute shop/r is not accepted: the Gateway has no listener htp")
        for text in texts(answer.explanation)
    )


def test_a_port_without_a_listener_lists_the_existing_ones() -> None:
    (answer,) = asked("http://shop.example:8080/x")
    assert answer.action is RequestAction.UNREACHABLE
    assert "did you mean http://shop.example:80/x?" in list(texts(answer.explanation))


def test_the_gateway_that_serves_the_port_is_first() -> None:
    web, other = (mk_gateway(path, addresses=[{"value": address}]) for path, address in ADDRESSES.items())
    first, second = asked("http://shop.example/", web, other, mk_route("shop/r", "shop/web", [API]))
    assert (first.gateway, second.gateway, second.status) == ("shop/web", "a/other", 404)


@pytest.mark.parametrize(
    "method, url, headers, message",
    [
        ("GET", "www.example/x", (), "is not an http or https URL"),
        ("GET", "https://", (), "is not an http or https URL"),
        ("GET", "https://x:port/", (), "is not a URL"),
        ("G T", "https://x/", (), "is not an HTTP method"),
        ("GET", "https://x/", ("nonsense",), "write 'Name: value'"),
        ("GET", "https://x/" + "a" * 20_000, (), "more than 16,000 characters"),
    ],
)
def test_an_invalid_request_gets_an_example(method: str, url: str, headers: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_request(method, url, headers)
