"""Totals that only grow, as counters must: what proxies have reported, added up, whichever of them come and go. No I/O.

A sum over the proxies that there are would fall when one of them goes, and a Prometheus takes that for a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.observation import HopSeen, ProxyReport, Traffic
from lasthop.plan.upstream import Hop

MAX_PROXIES: Final = 2000
"""Whose last report is remembered."""


class HopTotals(msgspec.Struct, frozen=True):
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
        """Returns what has been added; all of it where the proxy has begun to count anew."""
        tls = {name: count - before.tls_failures.get(name, 0) for name, count in self.tls_failures.items()}
        handshakes, failures = self.handshakes - before.handshakes, self.connect_failures - before.connect_failures
        if min(handshakes, failures, *tls.values()) < 0:
            return self
        return HopTotals(handshakes, tls, failures, added(self.traffic, before.traffic))


def added(now: Traffic, before: Traffic) -> Traffic:
    """Returns what has been added to traffic; all of it where the proxy has begun to count anew."""
    if any(ours < theirs for ours, theirs in zip(now.codes, before.codes, strict=True)):
        return now
    found = now - before
    return now if any(count < 0 for _, count in found.latency) else found


class Totals:
    def __init__(self) -> None:
        self.hops: dict[Hop, HopTotals] = {}
        self.routes: dict[tuple[Key, Key], Traffic] = {}
        """By Gateway and route."""
        self._last: dict[tuple[Key, str], ProxyReport] = {}

    def heard(self, report: ProxyReport) -> None:
        """Takes in the report of a proxy."""
        key = (report.gateway, report.proxy)
        last = self._last.pop(key, None)
        if last is not None and last.since != report.since:
            last = None
        self._last[key] = report
        if len(self._last) > MAX_PROXIES:
            del self._last[next(iter(self._last))]
        for hop, seen in report.hops.items():
            before = last.hops.get(hop) if last else None
            if hop.gateway != report.gateway or before is seen or before == seen:
                continue
            new = HopTotals.of(seen)
            self.hops[hop] = self.hops.get(hop, HopTotals()) + (new.since(HopTotals.of(before)) if before else new)
        for route, traffic in report.routes.items():
            was = last.routes.get(route) if last else None
            if was is not traffic and was != traffic:
                total = self.routes.get((report.gateway, route), Traffic())
                self.routes[report.gateway, route] = total + (added(traffic, was) if was else traffic)

    def keep(self, hops: Container[Hop], routes: Callable[[Key], bool]) -> None:
        """Forgets all but these: what does not exist any more has no series."""
        self.hops = {hop: each for hop, each in self.hops.items() if hop in hops}
        self.routes = {key: each for key, each in self.routes.items() if routes(key[1])}

    def forget(self, gateway: Key) -> None:
        """Forgets a Gateway that is gone."""
        self.hops = {hop: each for hop, each in self.hops.items() if hop.gateway != gateway}
        self.routes = {key: each for key, each in self.routes.items() if key[0] != gateway}
        for key in [key for key in self._last if key[0] == gateway]:
            del self._last[key]
