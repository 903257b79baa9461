"""After real traffic, `status`, `audit`, `explain`, `tap` and `top` agree with the clients' results."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from lasthop.web.app import BY_SOCKET
from tests.backends import backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import EXECUTABLE, Lasthop

WORDS = "certificate is for old.example, policy shop/wrong wants api.example"


class Shop(NamedTuple):
    lasthop: Lasthop

    def rows(self) -> dict[str, tuple[str, str]]:
        split = (line.split(maxsplit=2) for line in self.lasthop.command("status", "--no-headers").stdout.splitlines())
        return {name: (ready, why[0] if why else "") for name, ready, *why in split if name[-1] != ":"}

    def hops(self, *args: str) -> dict[str, dict[str, Any]]:
        document = json.loads(self.lasthop.command("audit", "-o", "json", *args).stdout)
        return {hop["service"]: hop for hop in document["hops"]}


@pytest.fixture(scope="module")
def shop(module_own: Callable[..., Lasthop]) -> Iterator[Shop]:
    """`right` works, `wrong` presents another name, `plain` has no policy and no listening backend, `later` has had no
    traffic."""
    lasthop = module_own()
    with backend(issued()) as working, backend(issued("old.example")) as failing, backend(issued()) as later:
        lasthop.standard()
        lasthop.write(
            "shop.yaml",
            docs.config_map("ca", CA.pem),
            *docs.hop("right", working.port, docs.policy("right", "api.example", "ca")),
            *docs.hop("wrong", failing.port, docs.policy("wrong", "api.example", "ca")),
            *docs.hop("plain", 9),
            *docs.hop("later", later.port, docs.policy("later", "api.example", "ca")),
        )
        lasthop.start()
        started = Shop(lasthop)

        def seen() -> bool:
            answers = [lasthop.get(name).status for name in ("right", "wrong", "plain")]
            assert answers == [200, 503, 503]
            rows, hops = started.rows(), started.hops()
            wrong, plain = rows["backendtlspolicy/shop/wrong"], rows["httproute/shop/plain"]
            assert wrong[0] == plain[0] == "False" and WORDS in wrong[1], rows
            right = hops["shop/right"]["observed"]
            return bool(right["certificates"] and right["handshakes"])

        until(seen, "what fails and what works is known")
        yield started


def test_status_is_not_ready_where_requests_fail_and_names_the_cause_once(shop: Shop) -> None:
    rows = shop.rows()
    assert rows["backendtlspolicy/shop/right"] == rows["httproute/shop/right"] == ("True", "")
    ready, why = rows["backendtlspolicy/shop/wrong"]
    assert (ready, WORDS in why) == ("False", True)
    assert rows["httproute/shop/wrong"] == ("False", "because of backendtlspolicy/shop/wrong")
    assert rows["httproute/shop/plain"] == ("False", "because of service/shop/plain")
    assert rows["backendtlspolicy/shop/later"] == ("True", "")
    assert list(rows.values())[-1][0] == "True", "what fails is first"
    first = shop.lasthop.command("status").stdout.splitlines()[0]
    assert first.startswith("service/shop/plain: ") and "connection refused" in first
    assert shop.lasthop.command("status", "--exit-code").returncode == 1
    wide = shop.lasthop.command("status", "-o", "wide", "backendtlspolicy").stdout
    assert "no connection was tried yet" in wide and "handshakes succeed" in wide
    names = shop.lasthop.command("status", "backendtlspolicy", "-o", "name").stdout.split()
    assert sorted(names) == [f"backendtlspolicy/shop/{name}" for name in ("later", "right", "wrong")]


def test_audit_separates_requirements_from_observations(shop: Shop) -> None:
    hops = shop.hops()
    standings = {name: hop["standing"] for name, hop in hops.items()}
    assert standings == {
        "shop/right": "verified",
        "shop/wrong": "failing",
        "shop/plain": "failing",
        "shop/later": "must be verified",
        "shop/first": "plaintext",
    }
    assert {hops[name]["manner"] for name in ("shop/right", "shop/wrong", "shop/later")} == {"verified"}
    assert hops["shop/wrong"]["observed"]["failures"][0]["why"] == WORDS
    right = hops["shop/right"]["observed"]
    assert right["handshakes"] >= 1 and right["certificates"][0]["names"] == ["api.example"]
    text = shop.lasthop.command("audit").stdout
    assert "observed: verified " in text and "observed: never tried" in text
    assert "observed: failing since 20" in text and WORDS in text
    assert "certificate that a backend shows, in Service shop/right:443" in text
    results = json.loads(shop.lasthop.command("audit", "-o", "sarif").stdout)["runs"][0]["results"]
    assert sorted(r["ruleId"] for r in results if r["ruleId"] in ("failing", "plaintext")) == [
        "failing",
        "failing",
        "plaintext",
        "plaintext",
    ]


@pytest.mark.parametrize("cause", ["failing", "unverified", "expiring"])
def test_a_pipeline_can_fail_on_what_happened(shop: Shop, cause: str) -> None:
    result = shop.lasthop.command("audit", "--fail-on", cause)
    assert result.returncode == 3 and f"Failed because of --fail-on {cause}" in result.stderr


def test_a_probe_tries_what_has_had_no_traffic(shop: Shop) -> None:
    assert shop.hops("--probe")["shop/later"]["standing"] == "verified"
    folder = shop.hops("--probe", str(shop.lasthop.folder))
    assert (
        folder["shop/wrong"]["standing"] == "failing"
        and "old.example" in folder["shop/wrong"]["observed"]["failures"][0]["why"]
    )
    assert folder["shop/right"]["standing"] == folder["shop/later"]["standing"] == "verified"
    assert shop.hops(str(shop.lasthop.folder))["shop/later"]["observed"] is None, "nobody looked"


def test_explain_ends_in_what_happened(shop: Shop) -> None:
    wrong = shop.lasthop.command("explain", "httproute", "wrong").stdout
    assert wrong.startswith("✗ HTTPRoute shop/wrong")
    assert "✗ observed: connections fail: Service shop/wrong:443 (127.0.0.1:" in wrong and WORDS in wrong
    policy = shop.lasthop.command("explain", "backendtlspolicy", "wrong").stdout
    assert "✗ Gateway shop/web, port 443: TLS, must be verified" in policy
    right = shop.lasthop.command("explain", "service", "right").stdout
    assert "✓ observed: handshakes succeed" in right and "for api.example, until " in right
    assert "observed: no connection was tried yet" in shop.lasthop.command("explain", "backendtlspolicy", "later").stdout
    assert "observed" not in shop.lasthop.command("explain", "httproute", "wrong", "--dir", str(shop.lasthop.folder)).stdout


def test_explain_request_shows_the_last_that_failed(shop: Shop) -> None:
    port = shop.lasthop.port
    shown = shop.lasthop.command("explain", "request", f"http://wrong.test:{port}/x").stdout
    assert "✗ failed at 20" in shown and f"503 GET / to Service shop/wrong:443: {WORDS}" in shown
    assert "requests to this route so far" in shown
    answer = json.loads(shop.lasthop.command("explain", "request", f"http://wrong.test:{port}/x", "-o", "json").stdout)[0]
    assert answer["last_failures"][0]["why"] == WORDS


def test_tap_shows_requests_as_they_come_in(shop: Shop) -> None:
    lasthop, ended = shop.lasthop, threading.Event()

    def visit() -> None:
        while not ended.wait(0.05):
            for name in ("right", "wrong", "nobody"):
                lasthop.get(name)

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        every = lasthop.cli("tap", "-c", "30").stdout.splitlines()
        failed = lasthop.cli("tap", "--failed", "-c", "3", "-o", "json").stdout.splitlines()
        to_right = lasthop.cli("tap", "--backend", "shop/right", "-c", "3").stdout.splitlines()
        of_route = lasthop.cli("tap", "--route", "hr/wrong", "-c", "2").stdout.splitlines()
    finally:
        ended.set()
        visitor.join(10)
    assert {line.split()[1] for line in every} == {"200", "503", "404"}
    assert any("200 GET right.test/ -> shop/right:443 127.0.0.1:" in line for line in every)
    assert any("404 GET nobody.test/ -> no route" in line for line in every)
    assert all(json.loads(line)["why"] == WORDS for line in failed)
    assert all("-> shop/right:443" in line for line in to_right)
    assert all(WORDS in line for line in of_route)


def test_only_the_user_whose_gateway_it_is_may_tap(shop: Shop) -> None:
    status, body = shop.lasthop.ask("/api/tap")
    assert (status, body) == (403, BY_SOCKET.format("tap").encode())


def test_the_end_of_the_gateway_ends_a_tap(own: Callable[..., Lasthop]) -> None:
    lasthop = own()
    lasthop.standard()
    lasthop.start()
    output = lasthop.root / "tapped"
    with output.open("wb") as out:
        tapping = subprocess.Popen([EXECUTABLE, "tap"], env=lasthop.env, stdout=out, stderr=out)
    until(lambda: lasthop.get("nobody").status == 404 and "404 GET nobody" in output.read_text())
    assert lasthop.stop() == 0
    assert tapping.wait(20) == 1
    assert "the gateway has stopped" in output.read_text()


def test_top_shows_routes_and_backends_with_what_fails_first(shop: Shop) -> None:
    def shown() -> list[str]:
        for _ in range(5):
            shop.lasthop.get("right")
            shop.lasthop.get("wrong")
        lines = shop.lasthop.command("top").stdout.splitlines()
        assert any(line.startswith("HTTPRoute shop/right ") and " 0.0% " in line for line in lines)
        assert any(line.startswith("HTTPRoute shop/wrong ") and " 100.0% " in line for line in lines)
        assert any(f"failing: {WORDS}" in line for line in lines)
        return lines

    lines = until(shown)
    assert lines[0].split() == ["ROUTE", "REQ/S", "ERRORS", "P50", "P99", "ACTIVE"]
    backends = lines[lines.index("") + 1 :]
    assert backends[0].split() == ["BACKEND", "REQ/S", "ERRORS", "P50", "P99", "ACTIVE", "HANDSHAKES", "STATE"]
    failing = ["failing: " in line for line in backends[1:]]
    assert failing == sorted(failing, reverse=True)
    assert json.loads(shop.lasthop.cli("top", "-o", "json").stdout)["routes"]
