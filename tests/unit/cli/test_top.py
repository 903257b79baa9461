"""The tables of `lasthop top`: failures first, readable figures, harmless text from untrusted sources."""

from __future__ import annotations

from typing import Any

import click
import pytest

from lasthop.cli.render.top_tables import text


def figures(per_second: float, errors: float = 0.0, p99: float | None = 0.25) -> dict[str, Any]:
    return {"per_second": per_second, "errors_per_second": errors, "p50": 0.003, "p99": p99, "active": 2}


def hop(backend: str, per_second: float, health: str = "working", protocol: str = "auto", **more: Any) -> dict[str, Any]:
    return {
        "gateway": "shop/web",
        "kind": "Service",
        "backend": backend,
        "port": 443,
        "protocol": protocol,
        "health": health,
        "failures": [],
        "handshakes": 7,
        "last_success": 990.0,
        "figures": figures(per_second),
        **more,
    }


REPORT = {
    "routes": [
        {"route": "HTTPRoute shop/quiet", "figures": figures(0.0, p99=None)},
        {"route": "HTTPRoute shop/busy", "figures": figures(1234.5)},
        {"route": "HTTPRoute shop/bad", "figures": figures(10.0, 5.0)},
    ],
    "hops": [
        hop("shop/busy", 1000.0),
        hop("shop/busy", 34.5, protocol="h1-upgrade"),
        hop("shop/bad", 1.0, "failing", failures=[{"words": "certificate has expired\x1b[2J"}], last_success=0.0),
    ],
}


def test_failures_are_first_then_the_most_requests() -> None:
    routes, backends = (part.splitlines() for part in text(REPORT, 1000.0).split("\n\n"))
    assert [line.split()[1] for line in routes[1:]] == ["shop/bad", "shop/busy", "shop/quiet"]
    assert routes[1].split()[2:] == ["10.0", "50.0%", "3", "ms", "250", "ms", "2"]
    assert routes[3].split()[2:4] == ["0.0", "-"]
    assert "failing: certificate has expired" in backends[1]
    assert backends[2].startswith("shop/web -> shop/busy:443") and "1,034.5" in backends[2], "protocols are one backend"
    assert backends[2].endswith(" 10 s ago") and "working" not in backends[2]


@pytest.mark.parametrize(
    ("handshakes", "errors", "message"),
    [
        (3, 0.0, "handshake 10 s ago"),
        (0, 0.0, "connected 10 s ago"),
        (3, 4.0, "handshake 10 s ago, 100% of requests get 5xx"),
        (0, 1.0, "connected 10 s ago, 25% of requests get 5xx"),
    ],
)
def test_a_handshake_and_the_answers_to_requests_are_two_facts(handshakes: int, errors: float, message: str) -> None:
    document = hop("shop/api", 4.0, handshakes=handshakes)
    document["figures"]["errors_per_second"] = errors
    assert text({"routes": [], "hops": [document]}, 1000.0).splitlines()[-1].endswith(f"  {message}")


def test_nothing_yet_is_said() -> None:
    assert text({"routes": [], "hops": []}, 0.0).count("none yet") == 2


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_gets_as_many_rows_and_columns_as_fit_and_no_control_characters(columns: int) -> None:
    many = {**REPORT, "routes": [{"route": f"HTTPRoute shop/r{n}{'x' * n}", "figures": figures(n)} for n in range(100)]}
    lines = [click.unstyle(line) for line in text(many, 1000.0, columns, 24).splitlines()]
    assert "and 92 more" in lines and len(lines) < 24
    assert max(map(len, lines)) <= columns and not any("\x1b" in line for line in lines)


def test_failures_are_red_on_a_terminal() -> None:
    lines = text(REPORT, 1000.0, 120, 24).splitlines()
    red = [click.unstyle(line).split()[0:2] for line in lines if line.startswith("\x1b[31m")]
    assert red == [["HTTPRoute", "shop/bad"], ["shop/web", "->"]]
