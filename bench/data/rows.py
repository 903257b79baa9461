"""Defines the rows of the data plane bench and their goals: CPU per request of Lasthop's Envoy, relative to others."""

from __future__ import annotations

from typing import Final, NamedTuple

LASTHOP: Final = "lasthop"
TUNED: Final = "hand-tuned Envoy"
TUNED_STATS: Final = "hand-tuned Envoy, our statistics"
TUNED_SAFE: Final = "hand-tuned Envoy, our statistics and protections"
ENVOY_GATEWAY: Final = "Envoy Gateway's configuration"
NGINX: Final = "nginx"
HAPROXY: Final = "HAProxy"
ONE_ROUTE: Final = "lasthop, one route"

AS_TUNED: Final = 1 / 0.97
"""At least 0.97 of hand-tuned Envoy."""


Goals = dict[str, float | None]


class Row(NamedTuple):
    name: str
    kind: str
    """Of client: see go/load.go."""
    host: str
    """Its first label names the backend: see `places.BACKENDS`."""
    path: str
    connections: int
    goals: Goals
    """At most so much, by the other side; None is shown and has no goal."""
    routes: int = 1


def _protected(envoy_gateway: float) -> Goals:
    """Goal of small requests. They pay for protections that hand-tuned Envoy lacks; docs/performance.md has the price of each.
    There is a goal beside one that has them, too."""
    tuned: Goals = {TUNED: None, TUNED_STATS: None, TUNED_SAFE: AS_TUNED}
    return {**tuned, ENVOY_GATEWAY: envoy_gateway, NGINX: None, HAPROXY: None}


def _goals(others: float | None = None) -> Goals:
    """Goal of rows that no protection affects."""
    return {TUNED: AS_TUNED, TUNED_STATS: AS_TUNED, ENVOY_GATEWAY: 1.0, NGINX: others, HAPROXY: others}


ROWS: Final = {
    "1k-h1": Row("1 KiB, HTTP/1.1 kept alive", "h1", "h1.bench.example", "/", 32, _protected(0.90)),
    "1k-h2": Row("1 KiB, HTTP/2", "h2", "h2.bench.example", "/", 32, _protected(0.90)),
    "1m": Row("1 MiB, HTTP/1.1", "h1", "h1.bench.example", "/large", 8, _goals(1.0)),
    "1m-h2": Row("1 MiB, HTTP/2", "h2", "h2.bench.example", "/large", 8, _goals()),
    "connect": Row("a new verified connection for each request", "h1", "close.bench.example", "/", 16, _goals(1.0)),
    "grpc": Row("gRPC, unary", "grpc", "grpc.bench.example", "/bench.Echo/Once", 32, _protected(1.0)),
    "websocket": Row("WebSocket, a frame and its answer", "websocket", "h1.bench.example", "/", 32, _goals()),
    "stream": Row("TLSRoute that terminates, 1 KiB and its answer", "stream", "echo.bench.example", "/", 32, _goals()),
    "routes": Row(
        "requests spread over 1,000 routes of a hostname", "h1", "many.bench.example", "/team-", 32, {ONE_ROUTE: 1.03}, 1000
    ),
}
"""In the order in which they are measured and shown."""
