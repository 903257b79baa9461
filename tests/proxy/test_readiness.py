"""`/readyz` and `lasthop status` of a gateway that does not serve the current files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.backends import until
from tests.proxy import documents as docs
from tests.proxy.lasthop import Lasthop


@pytest.fixture
def lasthop(own: Callable[..., Lasthop]) -> Lasthop:
    return own()


def _problems(lasthop: Lasthop) -> list[str]:
    document: list[str] = json.loads(lasthop.ask("/api/readiness")[1])["problems"]
    return document


def test_a_gateway_that_serves_nothing_is_not_ready_and_names_the_broken_file(lasthop: Lasthop) -> None:
    file = lasthop.folder / "gateway.yaml"
    lasthop.start(ready=False)
    until(lambda: _problems(lasthop) and "no Gateway" in _problems(lasthop)[0], "the empty folder has been read")
    assert lasthop.ask("/readyz")[0] == 503
    empty = lasthop.command("status", "--exit-code")
    assert (empty.returncode, empty.stdout.splitlines()[0]) == (1, _problems(lasthop)[0])

    listeners = [docs.http(lasthop.port, f"http-{number}") for number in range(65)]
    lasthop.write("gateway.yaml", docs.gateway_class(), docs.gateway("web", *listeners))
    until(lambda: len(_problems(lasthop)) == 2, "the file is refused")
    status, text = lasthop.ask("/readyz")
    assert status == 503
    first, *_ = lasthop.command("status").stdout.splitlines()
    assert re.fullmatch(rf"{re.escape(str(file))}:\d+: not applied, none of it is in force: .*64.*", first)
    assert first in text.decode() and "nothing is served" in text.decode()
    assert "gateway.yaml" not in lasthop.ask("/readyz", host="evil.example")[1].decode(), "only this machine is told why"

    lasthop.write("gateway.yaml", docs.gateway_class(), docs.gateway("web", docs.http(lasthop.port)))
    until(lasthop.ready, "ready")
    until(lambda: lasthop.command("status", "--exit-code").returncode == 0, "everything is ready")
    assert lasthop.ask("/readyz?strict") == (200, b"ready\n")

    with file.open("a") as opened:
        opened.write("---\nkind: [\n")
    until(lambda: _problems(lasthop), "the edit is refused")
    edited = lasthop.command("status", "--exit-code")
    assert edited.returncode == 1
    assert re.match(rf"{re.escape(str(file))}:\d+: not applied, the text of \S+ is in force: ", edited.stdout)
    rows = {line.split()[0]: line.split()[1] for line in edited.stdout.splitlines()[2:]}
    assert rows["gateway/shop/web"] == "Unknown", "of what was written nothing is known"
    assert lasthop.ask("/readyz")[0] == 200, "what it serves, it serves as before"
    assert lasthop.ask("/readyz?strict")[0] == 503
    assert json.loads(lasthop.command("status", "gateway", "-o", "json").stdout)[0]["metadata"]["name"] == "web"


def test_metrics_are_not_for_pages_of_other_sites(lasthop: Lasthop) -> None:
    lasthop.standard()
    lasthop.start()
    hosts = ("evil.example", "127.0.0.1.evil.example", "10.0.0.7:19000", "lasthop.lasthop-system.svc:19000", "localhost")
    assert [lasthop.ask("/metrics", host)[0] for host in hosts] == [421, 421, 200, 200, 200]
    assert [lasthop.ask(path, "evil.example")[0] for path in ("/", "/api/readiness", "/healthz")] == [421, 421, 200]
