"""Families of metrics, and the labels that they share.

A backend has the same labels wherever it occurs, so that series can be joined: `gateway` (as `shop/web`), `kind`, `namespace`,
`service` (its name, also that of an XBackend) and `port`. Protocols of one port are one series.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lasthop.engine.plan.observation import Traffic
from lasthop.engine.plan.upstream import Hop

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Each with the values of its labels."""
BACKEND: Final = ("gateway", "kind", "namespace", "service", "port")
CODES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")


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


def requests(name: str, help: str, labels: tuple[str, ...], found: Iterable[tuple[tuple[str, ...], Traffic]]) -> Metric:
    """Counts requests by class of the status code; a class that did not occur has no series."""
    samples = (
        ((*values, code), count) for values, each in found for code, count in zip(CODES, each.codes, strict=True) if count
    )
    return counter(name, help, (*labels, "code"), samples)


def durations(name: str, help: str, labels: tuple[str, ...], found: Iterable[tuple[tuple[str, ...], Traffic]]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=labels)
    for values, each in found:
        if each.latency:
            buckets = [("+Inf" if bound == inf else str(bound), count) for bound, count in each.latency]
            family.add_metric(values, buckets, each.latency_sum)
    return family
