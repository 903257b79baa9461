"""Sums the reports of proxies into totals that never decrease when proxies disappear. No I/O.

Prometheus counters must not decrease. A sum over the current proxies would fall when a proxy disappears, and Prometheus would
interpret that as a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable
from itertools import islice
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.observation import MAX_ENDPOINTS, EndpointSeen, HopSeen, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Hop

MAX_GONE: Final = 200
"""Silent proxies of one Gateway that are remembered by name."""


class HopTotals(msgspec.Struct, frozen=True, gc=False):
    handshakes: int = 0
    tls_failures: dict[str, int] = {}
    connect_failures: int = 0
    traffic: Traffic = Traffic()

    @classmethod
    def of(cls, seen: HopSeen) -> HopTotals:
        return cls(seen.handshakes, seen.tls_failures, seen.connect_failures, seen.traffic)

    def __add__(self, other: HopTotals) -> HopTotals:
        names = self.tls_failures.keys() | other.tls_failures.keys()
        tls = {name: self.tls_failures.get(name, 0) + other.tls_failures.get(name, 0) for name in names}
        failures = self.connect_failures + other.connect_failures
        return HopTotals(self.handshakes + other.handshakes, tls, failures, self.traffic + other.traffic)

    def since(self, before: HopTotals) -> HopTotals:
        """Returns the growth, or the whole count if the proxy's counters were reset."""
        tls = {name: count - before.tls_failures.get(name, 0) for name, count in self.tls_failures.items()}
        handshakes, failures = self.handshakes - before.handshakes, self.connect_failures - before.connect_failures
        if min(handshakes, failures, *tls.values()) < 0:
            return self
        return HopTotals(handshakes, tls, failures, added(self.traffic, before.traffic))


def added(now: Traffic, before: Traffic) -> Traffic:
    """Returns the growth of traffic, or the whole count if the proxy's counters were reset."""
    if any(ours < theirs for ours, theirs in zip(now.codes, before.codes, strict=True)):
        return now
    growth = now - before
    return now if any(count < 0 for _, count in growth.latency) else growth


def summed(parts: list[HopSeen], endpoints: Iterable[EndpointSeen]) -> HopSeen:
    """Sums the counts of several parts, with these endpoints and without traffic."""
    kinds: dict[str, int] = {}
    for part in parts:
        for kind, count in part.tls_failures.items():
            kinds[kind] = kinds.get(kind, 0) + count
    return HopSeen(
        sum(part.handshakes for part in parts),
        sum(part.handshake_failures for part in parts),
        sum(part.connect_failures for part in parts),
        kinds,
        max(part.last_success for part in parts),
        max(part.last_failure for part in parts),
        tuple(islice(endpoints, MAX_ENDPOINTS)),
    )


class _Counted(msgspec.Struct, frozen=True):
    """Holds the counts in a proxy's last report."""

    since: float
    hops: dict[Hop, HopTotals]
    routes: dict[Key, Traffic]


class Totals:
    def __init__(self) -> None:
        self.hops: dict[Hop, HopTotals] = {}
        self.routes: dict[tuple[Key, Key], Traffic] = {}
        """Traffic by Gateway and route."""
        self._last: dict[tuple[Key, str], _Counted] = {}
        self._gone: dict[Key, dict[str, float]] = {}
        """Start times of silent proxies by Gateway. The totals include the counts of such a proxy. These counts are no longer
        known separately if it reports again."""

    def heard(self, report: ProxyReport) -> Generator[None, None, None]:
        """Adds a proxy's report in steps, because it may have thousands of hops. Reports must not overlap."""
        key = (report.gateway, report.proxy)
        last = self._last.get(key)
        if last is None or last.since != report.since:
            last = self._last[key] = _Counted(report.since, {}, {})
        counted = self._gone.get(report.gateway, {}).pop(report.proxy, None) == report.since
        # Each number is added to `last` and to the totals in one step, so that an interrupted report is not counted twice.
        yield from self._add_hops(report, last, counted)
        yield from self._add_routes(report, last, counted)
        for hop in last.hops.keys() - report.hops.keys():
            del last.hops[hop]
        for route in last.routes.keys() - report.routes.keys():
            del last.routes[route]

    def _add_hops(self, report: ProxyReport, last: _Counted, counted: bool) -> Generator[None, None, None]:
        for hop, seen in report.hops.items():
            if hop.gateway == report.gateway:
                previous, new = last.hops.get(hop), HopTotals.of(seen)
                last.hops[hop] = new
                if previous != new and not counted:
                    self.hops[hop] = self.hops.get(hop, HopTotals()) + (new.since(previous) if previous else new)
                yield

    def _add_routes(self, report: ProxyReport, last: _Counted, counted: bool) -> Generator[None, None, None]:
        for route, traffic in report.routes.items():
            previous = last.routes.get(route)
            last.routes[route] = traffic
            if previous is not traffic and previous != traffic and not counted:
                total = self.routes.get((report.gateway, route), Traffic())
                self.routes[report.gateway, route] = total + (added(traffic, previous) if previous else traffic)
            yield

    def keep(self, hops: Container[Hop], routes: Callable[[Key], bool]) -> None:
        """Drops all other hops and routes, so that deleted objects have no series."""
        self.hops = {hop: total for hop, total in self.hops.items() if hop in hops}
        self.routes = {key: total for key, total in self.routes.items() if routes(key[1])}

    def keep_proxies(self, reports: Callable[[Key, str], bool]) -> None:
        """Drops the counts of silent proxies; the totals stay."""
        for key in [key for key in self._last if not reports(*key)]:
            gone = self._gone.setdefault(key[0], {})
            gone[key[1]] = self._last.pop(key).since
            if len(gone) > MAX_GONE:
                del gone[next(iter(gone))]

    def forget(self, gateway: Key) -> None:
        self.hops = {hop: total for hop, total in self.hops.items() if hop.gateway != gateway}
        self.routes = {key: total for key, total in self.routes.items() if key[0] != gateway}
        self._gone.pop(gateway, None)
        for key in [key for key in self._last if key[0] == gateway]:
            del self._last[key]
