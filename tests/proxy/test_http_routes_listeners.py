"""Which listener answers for a host: parentRefs, isolation, intersection, and 421 on a connection for another listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.documents import Document
from tests.proxy.echo import ask, redirect, rule, rules
from tests.proxy.h2 import H2
from tests.proxy.lasthop import Lasthop


def named(listener: Document, name: str, hostname: str = "") -> Document:
    return {**listener, "name": name, **({"hostname": hostname} if hostname else {})}


def attached(name: str, hostnames: list[str], **parent: object) -> Document:
    """Redirects to a host with its own name, so that one sees who answers."""
    document = rules(name, rule("/", redirect(hostname=f"{name}.rule")))
    document["spec"] |= {"hostnames": hostnames, "parentRefs": [{"name": "web", **parent}]}
    return document


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture(scope="module")
def running(module_own: Callable[..., Lasthop], ports: tuple[int, int]) -> Iterator[Lasthop]:
    lasthop = module_own()
    other, tls = ports
    shown = Certificate("listener", CA, sans=dns("example.org"))
    http, https = docs.http(lasthop.port), docs.https(tls, "shown")
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.key_pair("shown", shown),
        docs.gateway(
            "web",
            named(http, "any"),
            named(http, "wild", "*.example.com"),
            named(http, "deeper", "*.foo.example.com"),
            named(http, "exact", "abc.foo.example.com"),
            named(docs.http(other), "other"),
            named(https, "https"),
            named(https, "https-exact", "second-example.org"),
            named(https, "https-wild", "*.wildcard.org"),
            named(https, "https-exact-in-wild", "fourth-example.wildcard.org"),
        ),
        *docs.hop("first", 9),
    )
    lasthop.start()
    yield lasthop
    assert "refused configuration" not in lasthop.log


def who(lasthop: Lasthop, host: str, port: int = 0) -> str | int:
    """The route that answers, or the status if none does."""
    answer = ask(lasthop, host, port=port)
    location = answer.headers["location"]
    return location.split("/")[2].split(".")[0] if location else answer.status


def test_each_host_is_answered_by_its_most_specific_listener_alone(running: Lasthop) -> None:
    """Upstream's GatewayHTTPListenerIsolation."""
    listeners = ("any", "wild", "deeper", "exact")
    running.load("routes.yaml", *(attached(name, [], sectionName=name) for name in listeners))
    hosts = {"bar.com": "any", "bar.example.com": "wild", "bar.foo.example.com": "deeper", "abc.foo.example.com": "exact"}
    assert {host: who(running, host) for host in hosts} == hosts
    everywhere = ["bar.com", "*.example.com", "*.foo.example.com", "abc.foo.example.com"]
    running.load("routes.yaml", *(attached(name, everywhere, sectionName=name) for name in listeners))
    assert {host: who(running, host) for host in hosts} == hosts


def test_requests_that_a_listener_does_not_serve_never_reach_a_wider_one(running: Lasthop) -> None:
    running.load(
        "routes.yaml",
        attached("any", [], sectionName="any"),
        attached("too-wide", ["bar.foo.example.com", "bar.com"], sectionName="wild"),
        attached("wild", ["bar.example.com"], sectionName="wild"),
    )
    assert who(running, "bar.com") == "any"
    assert who(running, "bar.example.com") == "wild"
    assert who(running, "qux.example.com") == 404
    assert who(running, "bar.foo.example.com") == 404
    assert who(running, "abc.foo.example.com") == 404


def test_a_parent_ref_names_a_port_or_a_section(running: Lasthop, ports: tuple[int, int]) -> None:
    running.load(
        "routes.yaml",
        attached("by-port", ["a.test"], port=ports[0]),
        attached("by-section", ["b.test"], sectionName="other"),
        attached("by-both", ["c.test"], sectionName="other", port=ports[0]),
        attached("everywhere", ["d.test"]),
        attached("no-port", ["e.test"], port=1),
        attached("no-section", ["e.test"], sectionName="nowhere"),
        attached("no-such-pair", ["e.test"], sectionName="any", port=ports[0]),
        attached("no-name", ["e.test"], sectionName="exact"),
    )
    hosts = {"a.test": "by-port", "b.test": "by-section", "c.test": "by-both", "d.test": "everywhere", "e.test": 404}
    assert {host: who(running, host, ports[0]) for host in hosts} == hosts
    assert [who(running, host) for host in hosts] == [404, 404, 404, "everywhere", 404]
    for name in ("no-port", "no-section", "no-such-pair"):
        assert running.conditions("HTTPRoute", name)["Accepted"][:2] == ("False", "NoMatchingParent")
    assert running.conditions("HTTPRoute", "no-name")["Accepted"][:2] == ("False", "NoMatchingListenerHostname")


def test_a_more_specific_hostname_beats_an_older_route(running: Lasthop) -> None:
    """Upstream's GatewayRouteHostnameIntersectionPrecedence."""
    older, newer = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"

    def route(name: str, created: str, hostname: str, section: str, path: str, header: str = "") -> Document:
        document = attached(name, [hostname], sectionName=section)
        document["metadata"]["creationTimestamp"] = created
        match: Document = {"path": {"type": "PathPrefix", "value": path}}
        if header:
            match["headers"] = [{"name": header, "value": "x"}]
        document["spec"]["rules"][0]["matches"] = [match]
        return document

    running.load(
        "routes.yaml",
        route("old", older, "*.foo.example.com", "exact", "/path/prefix"),
        route("new", newer, "abc.foo.example.com", "exact", "/path", "header-a"),
        route("old-wild", older, "*.com", "wild", "/path/prefix"),
        route("new-wild", newer, "*.example.com", "wild", "/path", "header-a"),
    )

    def found(host: str, **headers: str) -> str:
        answer = ask(running, host, "/path/prefix/longer", headers={name.replace("_", "-"): v for name, v in headers.items()})
        return str(answer.headers["location"]).split("/")[2].split(".")[0]

    assert found("abc.foo.example.com", header_a="x") == "new"
    assert found("abc.foo.example.com") == "old"
    assert found("xyz.example.com", header_a="x") == "new-wild"
    assert found("xyz.example.com") == "old-wild"


# SNI, host, and who answers: upstream's GatewayHTTPSListenerDetectMisdirectedRequests
MISDIRECTED = [
    ("example.org", "example.org", "one"),
    ("example.org", "second-example.org", 421),
    ("example.org", "unknown-example.org", 404),
    ("second-example.org", "second-example.org", "two"),
    ("second-example.org", "example.org", 421),
    ("second-example.org", "unknown-example.org", 421),
    ("third-example.wildcard.org", "third-example.wildcard.org", "three"),
    ("third-example.wildcard.org", "fith-example.wildcard.org", "three"),
    ("third-example.wildcard.org", "fourth-example.wildcard.org", 421),
    ("third-example.wildcard.org", "second-example.org", 421),
    ("third-example.wildcard.org", "unknown-example.org", 421),
    ("fourth-example.wildcard.org", "fourth-example.wildcard.org", "four"),
    ("fourth-example.wildcard.org", "fith-example.wildcard.org", 421),
    ("unknown-example.org", "example.org", "one"),
    ("unknown-example.org", "unknown-example.org", 404),
]


def test_a_host_of_another_https_listener_is_misdirected(running: Lasthop, ports: tuple[int, int]) -> None:
    running.load(
        "routes.yaml",
        attached("one", ["example.org"], sectionName="https"),
        attached("two", [], sectionName="https-exact"),
        attached("three", [], sectionName="https-wild"),
        attached("four", [], sectionName="https-exact-in-wild"),
    )
    statuses = {}
    for sni, host, _ in MISDIRECTED:
        with contextlib.closing(H2(ports[1], sni)) as connection:
            statuses[sni, host] = connection.ask(host).status
    assert statuses == {(s, h): 302 if isinstance(wanted, str) else wanted for s, h, wanted in MISDIRECTED}
