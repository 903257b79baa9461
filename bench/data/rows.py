"""Defines the rows of the data plane bench: the requests of clients, and the proxies compared with Lasthop's Envoy."""

from __future__ import annotations

from typing import Final, NamedTuple

LASTHOP: Final = "lasthop"
TUNED: Final = "hand-tuned Envoy"
TUNED_SAFE: Final = "hand-tuned Envoy, our statistics and protections"
ENVOY_GATEWAY: Final = "Envoy Gateway's configuration"
NGINX: Final = "nginx"
HAPROXY: Final = "HAProxy"
ONE_ROUTE: Final = "lasthop, one route"


class Row(NamedTuple):
    name: str
    kind: str
    """Of client: see go/load.go."""
    host: str
    """Its first label names the backend: see `places.BACKENDS`."""
    path: str
    connections: int
    counted: int
    """Requests that are counted under callgrind."""
    others: tuple[str, ...]
    """What Lasthop is compared with; bench/goals.py has the goals."""
    routes: int = 1


_PROTECTED: Final = (TUNED, TUNED_SAFE, ENVOY_GATEWAY, NGINX, HAPROXY)
"""Beside small requests, which pay for protections that hand-tuned Envoy lacks: docs/performance.md has the price of each."""
_OTHERS: Final = (TUNED, ENVOY_GATEWAY, NGINX, HAPROXY)

ROWS: Final = {
    "1k-h1": Row("1 KiB, HTTP/1.1 kept alive", "h1", "h1.bench.example", "/", 32, 800, _PROTECTED),
    "1k-h2": Row("1 KiB, HTTP/2", "h2", "h2.bench.example", "/", 32, 800, _PROTECTED),
    "1m": Row("1 MiB, HTTP/1.1", "h1", "h1.bench.example", "/large", 8, 80, _OTHERS),
    "1m-h2": Row("1 MiB, HTTP/2", "h2", "h2.bench.example", "/large", 8, 80, _OTHERS),
    "connect": Row("a new verified connection for each request", "h1", "close.bench.example", "/", 16, 80, _OTHERS),
    "grpc": Row("gRPC, unary", "grpc", "grpc.bench.example", "/bench.Echo/Once", 32, 800, _PROTECTED),
    "websocket": Row("WebSocket, a frame and its answer", "websocket", "h1.bench.example", "/", 32, 1600, _OTHERS),
    "stream": Row("TLSRoute that terminates, 1 KiB and its answer", "stream", "echo.bench.example", "/", 32, 1600, _OTHERS),
    "routes": Row(
        "requests spread over 1,000 routes of a hostname", "h1", "many.bench.example", "/team-", 32, 4000, (ONE_ROUTE,), 1000
    ),
}
"""In the order in which they are measured and shown."""

COUNTED: Final = (LASTHOP, ONE_ROUTE, TUNED, TUNED_SAFE, ENVOY_GATEWAY)
"""Sides that run under callgrind: Envoys alone."""


def arguments(row: Row, side: str, ports: dict[str, int]) -> list[str]:
    """Returns the arguments of the client for a row and the side that serves it."""
    port = {"stream": "stream", "h2": "http2", "grpc": "grpc"}.get(row.kind, "http")
    host = "one.bench.example" if side == ONE_ROUTE else row.host
    flags = ["-kind", row.kind, "-host", host, "-path", row.path, "-address", f"127.0.0.1:{ports[port]}"]
    return [*flags, "-routes", str(row.routes if row.routes > 1 else 0)]
