"""Mirrors: copies go to other backends, under their BackendTLSPolicy too, and never touch the request itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.documents import Document
from tests.proxy.echo import Echo, ask, echo, mirror, request_headers, rule, rules, service, to
from tests.proxy.lasthop import Lasthop


@pytest.fixture(scope="module")
def backends(gateway: Lasthop) -> Iterator[dict[str, Echo]]:
    with echo("main") as main, echo("copy") as copy, echo("other") as other:
        named = {"main": main, "copy": copy, "other": other}
        gateway.load("mirrors-services.yaml", *(d for n, e in named.items() for d in service(f"mirror-{n}", e.port)))
        yield named


def test_several_mirrors_get_the_same_request(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    edit = request_headers(set={"x-edited": "yes"})
    filters = [mirror("mirror-copy"), edit, mirror("mirror-other")]
    gateway.load("mirrors.yaml", rules("mirrored", rule("/", *filters, to=[to("mirror-main")])))
    answer = ask(gateway, "mirrored.test", "/a?b=c", method="POST", body="hello").seen
    assert answer["backend"] == "main"
    for name in ("copy", "other"):
        copy = until(partial(backends[name].asked, "mirrored.test"))[0]
        assert (copy["method"], copy["path"], copy["body"]) == ("POST", "/a?b=c", "hello")
        assert copy["headers"]["x-edited"] == "yes"


@pytest.mark.parametrize("share", [{"percent": 20}, {"fraction": {"numerator": 1, "denominator": 5}}])
def test_a_mirror_gets_its_share(gateway: Lasthop, backends: dict[str, Echo], share: Document) -> None:
    host = f"share-{next(iter(share))}"
    gateway.load("mirrors.yaml", rules(host, rule("/", mirror("mirror-copy", **share), to=[to("mirror-main")])))
    for _ in range(250):
        assert ask(gateway, f"{host}.test").status == 200
    until(lambda: len(backends["copy"].asked(f"{host}.test")) > 20)
    assert 20 < len(backends["copy"].asked(f"{host}.test")) < 85


def test_none_and_zero_percent_get_nothing(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    nobody = [mirror("mirror-copy", percent=0), mirror("not-there")]
    gateway.load("mirrors.yaml", rules("nobody", rule("/", *nobody, to=[to("mirror-main")])))
    for _ in range(20):
        assert ask(gateway, "nobody.test").seen["backend"] == "main"
    assert backends["copy"].asked("nobody.test") == []
    resolved = gateway.conditions("HTTPRoute", "nobody")["ResolvedRefs"]
    assert resolved[:2] == ("False", "BackendNotFound")
    assert "not-there" in resolved[2]


def test_a_mirror_is_spoken_to_as_its_policy_wants(
    gateway: Lasthop, backends: dict[str, Echo], serve: Callable[..., Backend]
) -> None:
    secure = serve(issued(), name="secure")
    written = [
        docs.config_map("mirror-ca", CA.pem),
        docs.service("secure"),
        *docs.endpoints("secure", secure.port),
        docs.policy("secure", "api.example", "mirror-ca"),
        rules("secured", rule("/", mirror("secure", 443), to=[to("mirror-main")])),
    ]
    gateway.load("mirrors.yaml", *written)
    assert ask(gateway, "secured.test").seen["backend"] == "main"
    until(lambda: secure.requests)
    assert secure.last.sni == "api.example"
    assert not secure.saw_plaintext


@pytest.mark.parametrize("ca", ["invalid", "wrong"])
def test_a_copy_that_cannot_be_sent_safely_is_dropped(
    gateway: Lasthop, backends: dict[str, Echo], serve: Callable[..., Backend], ca: str
) -> None:
    """`serve` sees to it that no backend with TLS ever hears plaintext."""
    secure, name = serve(issued(), name="secure"), f"unsafe-{ca}"
    gateway.load(
        "mirrors.yaml",
        docs.config_map("mirror-ca", {"invalid": "no certificate", "wrong": OTHER_CA.pem}[ca]),
        docs.service(name),
        *docs.endpoints(name, secure.port),
        docs.policy(name, "api.example", "mirror-ca"),
        rules(name, rule("/", mirror(name, 443), to=[to("mirror-main")])),
    )
    for _ in range(10):
        assert ask(gateway, f"{name}.test").seen["backend"] == "main"
    assert secure.requests == []
    if ca == "invalid":
        assert secure.connections == []
        resolved = gateway.conditions("HTTPRoute", name)["ResolvedRefs"]
        assert resolved[:2] == ("False", "InvalidBackendTLS")
