"""Exports observations as metrics: requests by route and by backend, handshakes, the health of backends.

A backend has the same labels in all metrics, so that series can be joined: `gateway` (as `shop/web`), `kind`, `namespace`,
`service` (its name, also that of an XBackend) and `port`. Protocols of one port are one series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lasthop.base.api.meta import Key
from lasthop.edge.observe.observations import Observations
from lasthop.edge.observe.totals import HopTotals
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import leaves_of
from lasthop.engine.plan.observation import Health, Traffic
from lasthop.engine.plan.upstream import Hop
from lasthop.web.traffic import CLASSES, WORST

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and the sample."""
BACKEND: Final = ("gateway", "kind", "namespace", "service", "port")
ROUTE: Final = ("gateway", "kind", "namespace", "route")
OUTCOMES: Final = {
    "fail_verify_san": "wrong_name",
    "fail_verify_cert_hash": "not_pinned",
    "fail_verify_error": "untrusted",
    "fail_verify_no_cert": "no_certificate",
    "connection_error": "handshake_error",
}
"""Envoy's names. `untrusted`: unknown CA, expired, revoked; `handshake_error`: no common version, no TLS at all, a missing
client certificate."""
ESTIMATED: Final = "an estimate if a proxy has more than 20 requests a second, because it samples them."
Labels = tuple[str, ...]
T = TypeVar("T")


class HopRow(NamedTuple):
    hop: Hop
    active: int


def each_row(observations: Observations, hops: Iterable[Hop]) -> Iterator[HopRow]:
    """Yields the active requests at each hop one by one, so that other tasks can run in between."""
    for hop in hops:
        seen = observations.seen(hop)
        yield HopRow(hop, seen.traffic.active if seen else 0)


def traffic_metrics(
    rows: Sequence[HopRow],
    reports: Iterable[HopReport],
    hops: Mapping[Hop, HopTotals],
    routes: Mapping[tuple[Key, Key], Traffic],
) -> Iterator[Metric]:
    yield from _backends(_by_backend(hops))
    by_route = [((gateway.path, *route), traffic) for (gateway, route), traffic in sorted(routes.items(), key=_first)]
    help = f"Requests (connections, of streams), by route and class of the response; {ESTIMATED}"
    yield requests("lasthop_route_requests", help, ROUTE, by_route)
    yield durations("lasthop_route_request_duration_seconds", "Duration of requests, by route.", ROUTE, by_route)
    yield from _health(rows, reports)


def _first(item: tuple[T, object]) -> T:
    return item[0]


def _backends(backends: Mapping[Labels, HopTotals]) -> Iterator[Metric]:
    traffic = [(labels, totals.traffic) for labels, totals in backends.items()]
    help = f"Requests (connections, of streams), by backend and class of the response; {ESTIMATED}"
    yield requests("lasthop_backend_requests", help, BACKEND, traffic)
    yield durations("lasthop_backend_request_duration_seconds", "Duration of requests, by backend.", BACKEND, traffic)
    help = "TLS handshakes with a backend by outcome: success, or the kind of failure."
    yield counter("lasthop_backend_tls_handshakes", help, (*BACKEND, "outcome"), _handshakes(backends))
    help = "Failed connections to a backend, including failed handshakes."
    failures = ((labels, totals.connect_failures) for labels, totals in backends.items())
    yield counter("lasthop_backend_connect_failures", help, BACKEND, failures)


def _handshakes(backends: Mapping[Labels, HopTotals]) -> Iterator[tuple[Labels, float]]:
    for labels, totals in backends.items():
        if totals.handshakes or totals.tls_failures:
            yield (*labels, "success"), totals.handshakes
        counts: dict[str, int] = {}
        for name, count in totals.tls_failures.items():
            outcome = OUTCOMES.get(name, "handshake_error")
            counts[outcome] = counts.get(outcome, 0) + count
        yield from (((*labels, outcome), count) for outcome, count in sorted(counts.items()))


def _health(rows: Iterable[HopRow], reports: Iterable[HopReport]) -> Iterator[Metric]:
    """Yields the health shown by `lasthop audit`, which knows the current endpoints: a removed endpoint that failed, or had an
    expiring certificate, would otherwise keep an alert firing."""
    health: dict[Labels, Health] = {}
    active: dict[Labels, int] = {}
    for hop, under_way in rows:
        labels = backend_labels(hop)
        health[labels] = Health.UNTRIED
        active[labels] = active.get(labels, 0) + under_way
    expiry: dict[Labels, float] = {}
    for report in reports:
        labels = (report.gateway.path, *report.backend, str(report.port))
        if report.observed and labels in health:
            health[labels] = min(health[labels], report.observed.health, key=WORST.index)
        for leaf in leaves_of(report):
            expiry[labels] = min(expiry.get(labels, leaf.not_after), leaf.not_after)
    help = "1 for the health of connections to a backend: working, partly failing, failing, or untried."
    yield gauge(
        "lasthop_backend_health", help, (*BACKEND, "health"), (((*labels, state), 1) for labels, state in health.items())
    )
    help = "Expiry of the first certificate to expire among those a backend has presented."
    yield gauge("lasthop_backend_certificate_expiry_timestamp_seconds", help, BACKEND, expiry.items())
    yield gauge("lasthop_backend_requests_active", "Requests (or streams) in progress.", BACKEND, active.items())


def _by_backend(hops: Mapping[Hop, HopTotals]) -> dict[Labels, HopTotals]:
    """Sums the protocols of a port."""
    by_backend: dict[Labels, HopTotals] = {}
    for hop, totals in sorted(hops.items(), key=_first):
        labels = backend_labels(hop)
        by_backend[labels] = by_backend.get(labels, HopTotals()) + totals
    return by_backend


# --- families --------------------------------------------------------------------------------------------------------


def backend_labels(hop: Hop) -> tuple[str, ...]:
    return hop.gateway.path, hop.backend.kind, hop.backend.namespace, hop.backend.name, str(hop.port)


def gauge(name: str, help: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family


def counter(name: str, help: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, sample in samples:
        family.add_metric(values, sample)
    return family


def requests(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Traffic]]) -> Metric:
    """Counts requests by class of the status code; classes without requests have no series."""
    samples = (
        ((*values, code), count)
        for values, traffic in rows
        for code, count in zip(CLASSES, traffic.codes, strict=True)
        if count
    )
    return counter(name, help, (*labels, "code"), samples)


def durations(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Traffic]]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=labels)
    for values, traffic in rows:
        if traffic.latency:
            buckets = [("+Inf" if bound == inf else str(bound), count) for bound, count in traffic.latency]
            family.add_metric(values, buckets, traffic.latency_sum)
    return family
