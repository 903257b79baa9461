"""Aggregates the reports of all proxies into the health of each hop. No I/O; time is an argument.

ProxyReport ──heard──> Observations ──step(now)──> changed HopStates, by configuration   (input OBSERVED)
                                    ──seen, route, recent──> figures               (shown unchanged)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.totals import summed
from lasthop.edge.observe.verdict import NONE, EndpointVerdict, next_verdict
from lasthop.engine.plan.observation import (
    MAX_CERTIFICATES,
    MAX_ENDPOINTS,
    EndpointSeen,
    Failure,
    Health,
    HopSeen,
    HopState,
    LeafCertificate,
    ProxyReport,
    Traffic,
)
from lasthop.engine.plan.upstream import Connection, Hop

EXPIRES: Final = 30.0
"""Seconds without a report after which a proxy no longer counts."""
DETAILS_HOLD: Final = 30.0
"""Seconds between changes of the displayed details while the health stays the same. Without this limit a backend that shows
another certificate to each connection would change them continuously."""
FIRST_DETAILS_HOLD: Final = 3.0
"""Seconds between the first two changes of details, because users often correct one mistake after the other. Each further
change doubles it, until nothing has changed for twice `DETAILS_HOLD`."""
MAX_PROXIES: Final = 200
"""Proxies of one Gateway that are counted separately."""
AT_ONCE: Final = 500
"""Hops that are judged in one step: some 10 ms."""
WINDOW: Final = 10.0
"""Seconds over which rates are measured."""
_KEPT: Final = 16
"""Reports of a proxy that are kept to measure rates."""


class JudgedEndpoint(NamedTuple):
    """Holds a proxy's evidence about an endpoint, and the verdict."""

    proxy: str
    seen: EndpointSeen
    verdict: EndpointVerdict


class Rate(msgspec.Struct, frozen=True):
    """Traffic of the last seconds."""

    requests: float = 0.0
    """Requests per second."""
    errors: float = 0.0
    active: int = 0
    p50: float | None = None
    """Seconds."""
    p99: float | None = None


class Observations:
    def __init__(self) -> None:
        self._proxies: dict[tuple[Key, str], _Proxy] = {}
        self._by_gateway: dict[Key, dict[str, _Proxy]] = {}
        """The proxies by Gateway, so that the cost of a lookup does not grow with the number of Gateways."""
        self._states: dict[Hop, dict[str, HopState]] = {}
        """States by hop and configuration."""
        self._changed: dict[Connection, tuple[float, float]] = {}
        """The time of the last change of a hop's displayed details, and the seconds for which they must stay."""
        self._news: dict[Hop, None] = {}
        self._due: list[tuple[float, Hop]] = []
        self._due_at: dict[Hop, float] = {}
        """The time of each hop's next judgement. All other entries of the heap are obsolete."""

    # --- reports -----------------------------------------------------------------------------------------------------

    def heard(self, report: ProxyReport, now: float) -> bool:
        """Replaces a proxy's previous report; returns False if its Gateway has too many proxies."""
        if (report.gateway, report.proxy) not in self._proxies and len(self._of(report.gateway)) >= MAX_PROXIES:
            return False
        proxy = self._proxies.setdefault((report.gateway, report.proxy), _Proxy())
        self._by_gateway.setdefault(report.gateway, {})[report.proxy] = proxy
        previous = proxy.report.hops if proxy.report else {}
        proxy.take(report, now)
        hops = (hop for hop in report.hops if hop.gateway == report.gateway)
        self._news.update(dict.fromkeys(hop for hop in hops if self._matters(hop, previous.get(hop), report.hops[hop])))
        self._news.update(dict.fromkeys(previous.keys() - report.hops.keys()))
        return True

    def reports(self, gateway: Key, proxy: str) -> bool:
        return (gateway, proxy) in self._proxies

    def forget(self, gateway: Key) -> None:
        for key in [key for key in self._proxies if key[0] == gateway]:
            self._drop(key)

    @property
    def pending(self) -> bool:
        """Returns whether more hops have changed than one step judges."""
        return bool(self._news)

    def step(self, now: float) -> dict[Connection, HopState | None]:
        """Judges a limited number of hops and returns the changed states by configuration; None: the state is removed. Call it
        again while hops are `pending`."""
        for key in [key for key, proxy in self._proxies.items() if now - proxy.heard >= EXPIRES]:
            self._drop(key)
        while self._due and self._due[0][0] <= now:
            due, hop = heapq.heappop(self._due)
            if self._due_at.get(hop) == due:
                del self._due_at[hop]
                self._news[hop] = None
        hops = [*self._news][:AT_ONCE]
        for hop in hops:
            del self._news[hop]
        changes: dict[Connection, HopState | None] = {}
        for hop in hops:
            judged = self._judge(hop, now)
            for config in {**self._states.get(hop, {}), **judged}:
                self._settle(Connection(hop, config), judged.get(config, []), now, changes)
        return changes

    def _settle(
        self, key: Connection, judged: list[JudgedEndpoint], now: float, changes: dict[Connection, HopState | None]
    ) -> None:
        old = self.state(*key)
        new = _concluded(judged, old)
        if new == old:
            return
        changed, hold = self._changed.get(key, (-inf, FIRST_DETAILS_HOLD))
        due = changed + hold
        # Certificates and ejections often become known a moment after the health.
        learned = bool(new.certificates) > bool(old.certificates) or bool(new.ejected) > bool(old.ejected)
        if new.health is old.health and due > now and not learned:
            self._at(due, key.hop)
            return
        states = self._states.setdefault(key.hop, {})
        if new == HopState():
            states.pop(key.config, None)
            self._changed.pop(key, None)
            if not states:
                del self._states[key.hop]
            changes[key] = None
        else:
            if now - changed >= 2 * DETAILS_HOLD:
                hold = FIRST_DETAILS_HOLD
            elif new.health is old.health:
                hold = min(DETAILS_HOLD, 2 * hold)
            states[key.config], self._changed[key] = new, (now, hold)
            changes[key] = new

    def _matters(self, hop: Hop, old: HopSeen | None, new: HopSeen) -> bool:
        """Returns whether the difference may change a verdict; an unchanged trend is not judged again."""
        if old is new or (old and old.endpoints == new.endpoints):
            return False
        if old is None or len(old.endpoints) != len(new.endpoints):
            return True
        if any(self.state(hop, endpoint.config).health is Health.UNTRIED for endpoint in new.endpoints):
            return True
        return any(_relevant(ours) != _relevant(theirs) for ours, theirs in zip(old.endpoints, new.endpoints, strict=True))

    def _at(self, due: float, hop: Hop) -> None:
        if due < self._due_at.get(hop, inf):
            self._due_at[hop] = due
            heapq.heappush(self._due, (due, hop))

    def _drop(self, key: tuple[Key, str]) -> None:
        self._news.update(dict.fromkeys(self._proxies.pop(key).hops))
        gateway, name = key
        del self._by_gateway[gateway][name]
        if not self._by_gateway[gateway]:
            del self._by_gateway[gateway]

    def _of(self, gateway: Key) -> Mapping[str, _Proxy]:
        return self._by_gateway.get(gateway, {})

    def _serving(self, part: Hop | Key) -> Iterable[_Proxy]:
        """Returns the proxies that may have traffic of a hop, or of a route, which several Gateways may serve."""
        return self._of(part.gateway).values() if isinstance(part, Hop) else self._proxies.values()

    # --- verdicts ----------------------------------------------------------------------------------------------------

    def _judge(self, hop: Hop, now: float) -> dict[str, list[JudgedEndpoint]]:
        """Judges each endpoint by the evidence under one configuration; returns the endpoints with evidence by
        configuration."""
        judged: dict[str, list[JudgedEndpoint]] = {}
        for name, proxy in self._of(hop.gateway).items():
            seen = proxy.hops.get(hop)
            if seen is None:
                proxy.verdicts.pop(hop, None)
                continue
            before, after = proxy.verdicts.get(hop, {}), {}
            endpoints = tuple(map(proxy.by_our_clock, seen.endpoints))
            successes: dict[str, float] = {}
            for endpoint in endpoints:
                successes[endpoint.config] = max(endpoint.last_success, successes.get(endpoint.config, 0.0))
            for endpoint in endpoints:
                verdict, due = next_verdict(
                    before.get((endpoint.config, endpoint.address), NONE),
                    endpoint,
                    hop_success=successes[endpoint.config],
                    active=seen.traffic.active > 0,
                    now=now,
                )
                after[endpoint.config, endpoint.address] = verdict
                if due is not None:
                    self._at(due, hop)
                if verdict.health is not Health.UNTRIED:
                    judged.setdefault(endpoint.config, []).append(JudgedEndpoint(name, endpoint, verdict))
            proxy.verdicts[hop] = after
        return judged

    # --- figures -----------------------------------------------------------------------------------------------------

    def state(self, hop: Hop, config: str) -> HopState:
        return self._states.get(hop, {}).get(config, HopState())

    def hops(self) -> set[Hop]:
        return {hop for proxy in self._proxies.values() for hop in proxy.hops}

    def seen(self, hop: Hop) -> HopSeen | None:
        """Returns the figures of all proxies together."""
        figures = [seen for proxy in self._of(hop.gateway).values() if (seen := proxy.hops.get(hop))]
        return merged(figures) if figures else None

    def route(self, key: Key) -> Traffic:
        """Returns the traffic of a route through all Gateways."""
        return sum((proxy.routes.get(key, Traffic()) for proxy in self._proxies.values()), Traffic())

    def routes(self) -> set[Key]:
        return {key for proxy in self._proxies.values() for key in proxy.routes}

    def proxies(self, gateway: Key) -> tuple[ProxyReport, ...]:
        return tuple(proxy.report for proxy in self._of(gateway).values() if proxy.report)

    def rate(self, *parts: Hop | Key) -> Rate:
        """Returns the traffic of the last seconds, summed over hops or routes."""
        recent = [proxy.recent(part) for part in parts for proxy in self._serving(part)]
        longest = max((seconds for _, seconds in recent), default=0.0)
        total = sum((traffic for traffic, _ in recent), Traffic())
        if longest <= 0:
            return Rate(active=total.active)
        return Rate(total.requests / longest, total.errors / longest, total.active, total.quantile(0.5), total.quantile(0.99))

    def per_second(self, *parts: Hop | Key) -> tuple[float, float]:
        """Returns requests and errors per second, summed over hops or routes. Cheaper than `rate`, for thousands of them."""
        requests, errors, longest = 0, 0, 0.0
        for part in parts:
            for proxy in self._serving(part):
                added, failed, seconds = proxy.added(part)
                requests, errors, longest = requests + added, errors + failed, max(longest, seconds)
        return (requests / longest, errors / longest) if longest > 0 else (0.0, 0.0)


class _Figures(dict[Hop | Key, Traffic]):
    """Holds the traffic of a report by hop and route. Their keys differ in length, so they never collide."""

    @classmethod
    def of(cls, report: ProxyReport) -> _Figures:
        figures = cls((hop, seen.traffic) for hop, seen in report.hops.items())
        figures.update(report.routes.items())
        return figures

    def __missing__(self, part: Hop | Key) -> Traffic:
        return Traffic()


class _Proxy:
    def __init__(self) -> None:
        self.report: ProxyReport | None = None
        self.heard = 0.0
        self.ahead = 0.0
        """Seconds by which our clock is ahead of the proxy's, including the transit time of the report."""
        self.verdicts: dict[Hop, dict[tuple[str, str], EndpointVerdict]] = {}
        """Verdicts by hop, then by configuration and address."""
        self._figures: deque[tuple[float, _Figures]] = deque(maxlen=_KEPT)

    @property
    def hops(self) -> dict[Hop, HopSeen]:
        return self.report.hops if self.report else {}

    @property
    def routes(self) -> dict[Key, Traffic]:
        return self.report.routes if self.report else {}

    def take(self, report: ProxyReport, now: float) -> None:
        if self.report and self.report.since != report.since:
            self._figures.clear()  # another process, whose counts restart at zero
        self.report, self.heard, self.ahead = report, now, now - report.at
        self._figures.append((now, _Figures.of(report)))
        while len(self._figures) > 2 and now - self._figures[1][0] >= WINDOW:
            self._figures.popleft()

    def by_our_clock(self, seen: EndpointSeen) -> EndpointSeen:
        if abs(self.ahead) < 0.001:
            return seen
        times = {name: getattr(seen, name) for name in ("failing_since", "last_failure", "last_success", "ejected_since")}
        return msgspec.structs.replace(seen, **{name: time + self.ahead for name, time in times.items() if time})

    def recent(self, part: Hop | Key) -> tuple[Traffic, float]:
        """Returns the traffic of the last seconds, and the number of seconds."""
        if not self._figures:
            return Traffic(), 0.0
        (then, first), (now, last) = self._figures[0], self._figures[-1]
        return last[part] - first[part], now - then

    def added(self, part: Hop | Key) -> tuple[int, int, float]:
        """Returns the requests and errors of the last seconds, and the number of seconds."""
        if not self._figures:
            return 0, 0, 0.0
        (then, first), (now, last) = self._figures[0], self._figures[-1]
        old, new = first[part], last[part]
        return (0, 0, now - then) if old is new else (new.requests - old.requests, new.errors - old.errors, now - then)


def _relevant(seen: EndpointSeen) -> tuple[object, ...]:
    succeeded = not seen.in_a_row and seen.last_success // 60
    details = (seen.failure, seen.certificate, seen.tls_version)
    return seen.config, seen.address, min(seen.in_a_row, 2), succeeded, bool(seen.ejected_since), *details


def _concluded(judged: list[JudgedEndpoint], old: HopState) -> HopState:
    if not judged:
        return HopState()
    bad = [endpoint for endpoint in judged if endpoint.verdict.health is Health.FAILING]
    # Without any endpoint, earlier evidence about endpoints no longer applies.
    absent = [endpoint for endpoint in bad if not endpoint.seen.address]
    working = set() if absent else {endpoint.seen.address for endpoint in judged if endpoint.verdict.health is Health.WORKING}
    failing = Health.PARTLY_FAILING if working else Health.FAILING
    return _state(failing if bad else Health.WORKING, judged, absent or bad, working, old)


def _state(
    health: Health, judged: list[JudgedEndpoint], bad: list[JudgedEndpoint], working: set[str], old: HopState
) -> HopState:
    since = old.since if old.health is health else min(endpoint.verdict.since for endpoint in bad or judged)
    seen = [endpoint.seen for endpoint in judged]
    ejected = {endpoint.seen.address for endpoint in bad if endpoint.seen.ejected_since}
    return HopState(
        health,
        since,
        tuple(_failures(bad, {endpoint.proxy for endpoint in judged})),
        tuple(sorted(working)[:MAX_ENDPOINTS]),
        _leaves(seen),
        tuple(sorted({endpoint.tls_version for endpoint in seen} - {""})),
        tuple(sorted(ejected)[:MAX_ENDPOINTS]),
    )


def _leaves(seen: Iterable[EndpointSeen]) -> tuple[LeafCertificate, ...]:
    leaves = {endpoint.certificate for endpoint in seen if endpoint.certificate}
    return tuple(sorted(leaves, key=lambda leaf: leaf.not_after)[:MAX_CERTIFICATES])


def _failures(bad: Iterable[JudgedEndpoint], proxies: set[str]) -> Iterator[Failure]:
    """Yields each reason once with its endpoints, the reason with most endpoints first."""
    reasons: dict[tuple[str, bool, bool], tuple[set[str], set[str]]] = {}
    for name, seen, _ in bad:
        endpoints, reporters = reasons.setdefault((seen.failure, seen.handshake, seen.request), (set(), set()))
        endpoints.add(seen.address)
        reporters.add(name)
    for (reason, handshake, request), (endpoints, reporters) in sorted(
        reasons.items(), key=lambda item: (-len(item[1][0]), item[0])
    ):
        addresses = tuple(sorted(endpoints - {""})[:MAX_ENDPOINTS])
        yield Failure(reason, addresses, () if reporters == proxies else tuple(sorted(reporters)), handshake, request)


def merged(figures: list[HopSeen]) -> HopSeen:
    """Merges the figures of several proxies, or of several protocols of one port."""
    if len(figures) == 1:
        return figures[0]
    endpoints: dict[tuple[str, str], list[EndpointSeen]] = {}
    for endpoint in (endpoint for seen in figures for endpoint in seen.endpoints):
        endpoints.setdefault((endpoint.config, endpoint.address), []).append(endpoint)
    merged_endpoints = sorted(
        (_merged_endpoint(reports) for reports in endpoints.values()),
        key=lambda endpoint: (not endpoint.in_a_row, endpoint.address),
    )
    return msgspec.structs.replace(
        summed(figures, merged_endpoints), traffic=sum((seen.traffic for seen in figures), Traffic())
    )


def _merged_endpoint(reports: list[EndpointSeen]) -> EndpointSeen:
    """Merges the evidence of all proxies about one endpoint. The certificate is the last one that a proxy received."""
    worst = max(reports, key=lambda endpoint: (endpoint.in_a_row > 0, endpoint.last_failure))
    latest = max(reports, key=lambda endpoint: (endpoint.certificate is not None, endpoint.last_success))
    return msgspec.structs.replace(
        worst,
        failures=sum(endpoint.failures for endpoint in reports),
        last_success=max(endpoint.last_success for endpoint in reports),
        certificate=latest.certificate,
        tls_version=latest.tls_version,
        cipher=latest.cipher,
        ejected_since=min((endpoint.ejected_since for endpoint in reports if endpoint.ejected_since), default=0.0),
    )
