"""Rewrites and header edits, as the backend and the client receive them: at the rule, at the backend, and at both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.proxy.echo import (
    PREFIX_TABLE,
    Echo,
    ask,
    echo,
    full_path,
    prefix_path,
    replacing,
    request_headers,
    response_headers,
    rewrite,
    rule,
    rules,
    service,
    to,
)
from tests.proxy.lasthop import Lasthop

HOST = "rewrites.test"


@pytest.fixture(scope="module")
def backends(gateway: Lasthop) -> Iterator[dict[str, Echo]]:
    with echo("one") as one, echo("two") as two, echo("three") as three:
        named = {"one": one, "two": two, "three": three}
        three.response_headers = [("x-set", "backend"), ("x-add", "backend"), ("x-gone", "backend")]
        gateway.load("rewrites-services.yaml", *(d for name, e in named.items() for d in service(name, e.port)))
        yield named


def test_a_prefix_is_replaced_by_the_specs_table(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    gateway.load("rewrites-table.yaml", *replacing(rewrite, to("one")))
    paths = [ask(gateway, f"table-{n}.test", f"{path}?q=/foo").seen["path"] for n, (path, *_) in enumerate(PREFIX_TABLE)]
    assert paths == [f"{wanted}?q=/foo" for *_, wanted in PREFIX_TABLE]


def test_a_prefix_is_replaced_at_a_backend_as_at_the_rule(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    lines = [
        rules(f"table-{n}", rule(prefix, to=[to("one", filters=[rewrite(path=prefix_path(value))])]))
        for n, (_, prefix, value, _) in enumerate(PREFIX_TABLE)
    ]
    gateway.load("rewrites-table.yaml", *lines)
    paths = [ask(gateway, f"table-{n}.test", f"{path}?q=/foo").seen["path"] for n, (path, *_) in enumerate(PREFIX_TABLE)]
    assert paths == [f"{wanted}?q=/foo" for *_, wanted in PREFIX_TABLE]


def test_hostname_and_path_are_rewritten_and_the_rest_is_left(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    gateway.load(
        "rewrites.yaml",
        rules(
            "rewrites",
            rule("/host", rewrite(hostname="one.example.org"), to=[to("one")]),
            rule("/full", rewrite(path=full_path(r"/a%20b/%5C1")), to=[to("one")]),
            rule("/empty", rewrite(path=full_path("")), to=[to("one")]),
            rule("/both", rewrite(hostname="both.example", path=prefix_path("/x")), to=[to("one")]),
            rule("/plain", to=[to("one")]),
        ),
    )

    def seen(path: str) -> tuple[str, str]:
        answer = ask(gateway, HOST, path).seen
        return answer["host"], answer["path"]

    assert seen("/host/a?b=c") == ("one.example.org", "/host/a?b=c")
    assert seen("/full/a?b=c") == (HOST, "/a%20b/%5C1?b=c")
    assert seen("/empty/a") == (HOST, "/")
    assert seen("/both/a") == ("both.example", "/x/a")
    assert seen("/plain/a%20b?c=%2F%25") == (HOST, "/plain/a%20b?c=%2F%25")


def test_each_of_several_backends_gets_its_share_and_its_own_rewrite(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    gateway.load(
        "rewrites.yaml",
        rules(
            "rewrites",
            rule(
                "/split",
                rewrite(hostname="rule.example"),
                to=[
                    to("one", weight=50, filters=[rewrite(path=prefix_path("/a"))]),
                    to("two", weight=25, filters=[rewrite(path=full_path("/b"), hostname="two.example")]),
                    to("three", weight=25),
                    to("one", weight=0, filters=[rewrite(path=full_path("/never"))]),
                ],
            ),
            rule("/hosts", to=[to("one", filters=[rewrite(hostname="one.example")]), to("two")]),
        ),
    )
    answers = [ask(gateway, HOST, "/split/x").seen for _ in range(400)]
    shares = Counter((a["backend"], a["path"], a["host"]) for a in answers)
    assert set(shares) == {
        ("one", "/a/x", "rule.example"),
        ("two", "/b", "two.example"),
        ("three", "/split/x", "rule.example"),
    }
    assert all(abs(count / 400 - {"one": 0.5}.get(name, 0.25)) < 0.1 for (name, *_), count in shares.items())
    hosts = {(a["backend"], a["host"]) for a in (ask(gateway, HOST, "/hosts").seen for _ in range(40))}
    assert hosts == {("one", "one.example"), ("two", HOST)}


def test_request_headers_are_set_added_and_removed(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    edit = request_headers(set={"X-Set": "100% %REQ(x)%"}, add={"X-Add": "rule", "x-new": "rule"}, remove=["X-Gone"])
    gateway.load("rewrites.yaml", rules("rewrites", rule("/", edit, to=[to("one")])))
    sent = {"x-set": "client", "X-ADD": "client", "x-gone": "client", "x-kept": "client"}
    seen = ask(gateway, HOST, headers=sent).seen["headers"]
    assert {name: seen.get(name) for name in ("x-set", "x-add", "x-new", "x-gone", "x-kept")} == {
        "x-set": "100% %REQ(x)%",
        "x-add": "client,rule",
        "x-new": "rule",
        "x-gone": None,
        "x-kept": "client",
    }


def test_response_headers_are_set_added_and_removed(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    edit = response_headers(set={"X-Set": "50%"}, add={"X-Add": "rule", "x-new": "rule"}, remove=["X-Gone"])
    gateway.load("rewrites.yaml", rules("rewrites", rule("/", edit, to=[to("three")])))
    headers = ask(gateway, HOST).headers
    assert headers.get_all("x-set") == ["50%"]
    assert headers.get_all("x-add") == ["backend", "rule"]
    assert headers.get_all("x-new") == ["rule"]
    assert "x-gone" not in headers


def test_a_backends_own_edits_come_after_those_of_its_rule(gateway: Lasthop, backends: dict[str, Echo]) -> None:
    at_rule = request_headers(set={"x-set": "rule", "x-both": "rule"}, add={"x-add": "rule"}, remove=["x-gone", "x-back"])
    at_one = request_headers(set={"X-Both": "one"}, add={"X-Add": "one", "x-back": "one"}, remove=["x-set"])
    out = response_headers(set={"x-from": "one"})
    gateway.load(
        "rewrites.yaml",
        rules("rewrites", rule("/", at_rule, to=[to("one", filters=[at_one, out]), to("two", weight=3)])),
    )
    sent = {"x-add": "client", "x-gone": "client", "x-back": "client"}
    names = ("x-set", "x-both", "x-add", "x-gone", "x-back")
    wanted = {
        "one": {"x-set": None, "x-both": "one", "x-add": "client,rule,one", "x-gone": None, "x-back": "one"},
        "two": {"x-set": "rule", "x-both": "rule", "x-add": "client,rule", "x-gone": None, "x-back": None},
    }
    met = set()
    for _ in range(40):
        answer = ask(gateway, HOST, headers=sent)
        name = answer.seen["backend"]
        met.add(name)
        assert {n: answer.seen["headers"].get(n) for n in names} == wanted[name]
        assert answer.headers.get("x-from") == (name if name == "one" else None)
    assert met == {"one", "two"}
