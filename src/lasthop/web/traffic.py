"""Serves /api/traffic: observed figures by hop, by route and by proxy."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.observations import Observations, Rate
from lasthop.engine.plan.observation import EndpointSeen, Failure, Health, HopSeen, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.hops.observed import hop_state, seen_now
from lasthop.engine.store.graph import Graph

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
WORST = (Health.FAILING, Health.PARTLY_FAILING, Health.WORKING, Health.UNTRIED)
"""The worst first."""


class Figures(msgspec.Struct, frozen=True):
    """Figures of requests; of streams, connections. Counts are since the proxies started, rates of the last 10 s."""

    requests: int
    codes: dict[str, int]
    active: int
    per_second: float
    errors_per_second: float
    p50: float | None
    """Seconds."""
    p99: float | None

    @classmethod
    def of(cls, traffic: Traffic, rate: Rate) -> Figures:
        codes = dict(zip(CLASSES, traffic.codes, strict=True))
        recent = (round(rate.requests, 3), round(rate.errors, 3), rate.p50, rate.p99)
        return cls(traffic.requests, codes, traffic.active, *recent)


class HopTraffic(msgspec.Struct, frozen=True):
    gateway: str
    kind: str
    backend: str
    port: int
    protocol: str
    health: Health
    since: float
    """Unix time, like all times here; 0: never."""
    failures: tuple[Failure, ...]
    handshakes: int
    handshake_failures: int
    connect_failures: int
    tls_failures: dict[str, int]
    last_success: float
    last_failure: float
    endpoints: tuple[EndpointSeen, ...]
    figures: Figures


class RouteTraffic(msgspec.Struct, frozen=True):
    route: str
    """`HTTPRoute shop/web`."""
    figures: Figures


class ProxySeen(msgspec.Struct, frozen=True):
    gateway: str
    proxy: str
    since: float
    heard: float
    hops: int
    failing: int


class TrafficReport(msgspec.Struct, frozen=True):
    hops: tuple[HopTraffic, ...]
    """Hops that some proxy has used; failing ones first."""
    routes: tuple[RouteTraffic, ...]
    proxies: tuple[ProxySeen, ...]


def each_hop(g: Graph, observations: Observations, hops: list[Hop]) -> Iterator[HopTraffic]:
    for hop in hops:
        seen = observations.seen(hop)
        if seen is not None:
            yield _hop(g, hop, seen, observations.rate(hop))


def in_order(hops: list[HopTraffic]) -> tuple[HopTraffic, ...]:
    return tuple(sorted(hops, key=lambda hop: (WORST.index(hop.health), -hop.figures.per_second)))


def _hop(g: Graph, hop: Hop, seen: HopSeen, rate: Rate) -> HopTraffic:
    state, seen = hop_state(g, *hop), seen_now(g, hop, seen)
    return HopTraffic(
        hop.gateway.path,
        hop.backend.kind,
        hop.backend.path,
        hop.port,
        hop.protocol,
        state.health,
        state.since,
        state.failures,
        seen.handshakes,
        seen.handshake_failures,
        seen.connect_failures,
        seen.tls_failures,
        seen.last_success,
        seen.last_failure,
        seen.endpoints,
        Figures.of(seen.traffic, rate),
    )


def each_route(observations: Observations) -> Iterator[RouteTraffic]:
    for key in sorted(observations.routes()):
        yield RouteTraffic(str(key), Figures.of(observations.route(key), observations.rate(key)))


def each_proxy(observations: Observations, gateways: list[Key]) -> Iterator[ProxySeen]:
    for gateway in gateways:
        for report in observations.proxies(gateway):
            yield _proxy(report)


def _proxy(report: ProxyReport) -> ProxySeen:
    failing = sum(1 for seen in report.hops.values() if any(endpoint.in_a_row for endpoint in seen.endpoints))
    return ProxySeen(report.gateway.path, report.proxy, report.since, report.at, len(report.hops), failing)
