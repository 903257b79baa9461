"""Aggregates the evidence of one proxy: outcomes, requests and counts in, a `ProxyReport` out. No I/O, no clock.

The access log contains only samples. So Envoy's counters of an endpoint also decide whether it has worked since it failed.
`watched` requests these counters while they are needed.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe import words as in_words
from lasthop.edge.observe.evidence import ConnectionOutcome, Counts, EndpointCounts, EndpointsCounted, HopCounts, ServedRequest
from lasthop.edge.observe.totals import summed
from lasthop.edge.observe.words import cut, shown
from lasthop.engine.plan.observation import (
    LATENCY_BOUNDS,
    MAX_ENDPOINTS,
    EndpointSeen,
    HopSeen,
    LeafCertificate,
    ProxyReport,
    Traffic,
)
from lasthop.engine.plan.upstream import Connection, Hop

MAX_HOPS: Final = 20_000
MAX_WATCHED: Final = 100
"""Hops whose endpoint counters are read at a time."""
SUCCESS_ASSUMED_AFTER: Final = 30.0
"""Seconds without a failure after which new connections count as successes even without samples."""
HOP_EXPIRY_SECONDS: Final = 3600.0
"""Seconds after which a hop that Envoy no longer counts is dropped."""
MAX_CONFIGS: Final = 4
"""Configurations of a hop that are counted separately: the current one, and earlier ones with open streams."""
_MAX_DOUBTFUL: Final = 16
_MAX_FAILURES_PER_READ: Final = 2
"""Maximum failures recorded for a counter's growth between two reads: the number that a verdict needs."""
_MIN_EJECTION_GAP: Final = 5.0
"""Minimum gap in seconds between two ejections that count separately."""


class Tally:
    """Collects the evidence of one proxy of a Gateway. Hops of other Gateways are ignored."""

    def __init__(self, gateway: Key, proxy: str = "", *, now: float) -> None:
        self.gateway, self.proxy, self.since = gateway, proxy, now
        self._hops: dict[Hop, _HopTally] = {}
        self._routes: dict[Key, _Requests] = {}
        self._turn = 0
        self._counted = False

    def __repr__(self) -> str:
        return f"<Tally of {self.gateway.path}{f' at {self.proxy}' if self.proxy else ''}: {len(self._hops)} hops>"

    def take(self, outcome: ConnectionOutcome) -> None:
        """Records the connection in a line of the access log."""
        if hop := self._of(outcome.hop):
            hop.config_tally(outcome.config).take(_bounded(outcome))

    def request(self, request: ServedRequest) -> None:
        """Records the request in a line of the access log, and its response."""
        if request.hop and (hop := self._of(request.hop)):
            hop.request(request)
        if request.route and (request.route in self._routes or len(self._routes) < MAX_HOPS):
            self._routes.setdefault(request.route, _Requests()).take(request)

    def count(self, counts: Counts, now: float) -> None:
        for key, counted in counts.items():
            if hop := self._of(key.hop):
                hop.count(key.config, counted, now, first=not self._counted)
        counted_hops = {key.hop for key in counts}
        for gone in [
            key for key, hop in self._hops.items() if now - hop.heard > HOP_EXPIRY_SECONDS and key not in counted_hops
        ]:
            del self._hops[gone]
        self._counted = True

    def count_endpoints(self, counted: EndpointsCounted, now: float) -> None:
        """Records Envoy's counters for the endpoints of `watched` hops."""
        for key, endpoints in counted.items():
            if hop := self._hops.get(key.hop):
                hop.config_tally(key.config).count_endpoints(endpoints, now)

    def watched(self) -> list[Hop]:
        """Returns the hops whose endpoint counters are needed. If there are many, they take turns."""
        hops = [key for key, hop in self._hops.items() if hop.watched]
        begin = self._turn % len(hops) if hops else 0
        chosen = (hops[begin:] + hops[:begin])[:MAX_WATCHED]
        self._turn = begin + len(chosen)
        return chosen

    def report(self, now: float) -> ProxyReport:
        hops = {key: hop.seen() for key, hop in self._hops.items()}
        routes = {key: requests.traffic() for key, requests in self._routes.items()}
        return ProxyReport(self.gateway, self.proxy, self.since, now, hops, routes)

    def _of(self, key: Hop) -> _HopTally | None:
        tally = self._hops.get(key)
        if tally is None and key.gateway == self.gateway and len(self._hops) < MAX_HOPS:
            tally = self._hops[key] = _HopTally(key)
        return tally


class _Requests:
    """Counts requests by weight."""

    def __init__(self) -> None:
        self._codes = [0.0] * 5
        self._latency = [0.0] * len(LATENCY_BOUNDS)
        self._traffic: Traffic | None = None

    def take(self, request: ServedRequest) -> None:
        self._traffic = None
        self._codes[min(5, max(1, request.status // 100)) - 1] += request.weight
        self._latency[bisect_left(LATENCY_BOUNDS, request.seconds)] += request.weight

    def traffic(self, active: int = 0) -> Traffic:
        if self._traffic is None or self._traffic.active != active:
            one, two, three, four, five = map(round, self._codes)
            cumulative = map(round, accumulate(self._latency))
            latency = tuple(zip(LATENCY_BOUNDS, cumulative, strict=True))
            self._traffic = Traffic((one, two, three, four, five), latency, active)
        return self._traffic


class _Counter:
    """Continues a counter of Envoy across Envoy's resets."""

    def __init__(self) -> None:
        self._before = self._last = 0

    @property
    def total(self) -> int:
        return self._before + self._last

    def take(self, new: int) -> int:
        """Returns the growth since the last call."""
        if new < self._last:
            self._before += self._last
            self._last = 0
        grown, self._last = new - self._last, new
        return grown


class _HopTally:
    """Collects the requests of a hop in any configuration, and the evidence for each configuration."""

    def __init__(self, key: Hop) -> None:
        self._key = key
        self._requests = _Requests()
        self._config_tallies: dict[str, _ConfigTally] = {}
        self._ended = HopSeen()
        """The counts of dropped configurations."""
        self._parts: list[HopSeen] = []
        self._seen: HopSeen | None = None

    @property
    def heard(self) -> float:
        return max((tally.heard for tally in self._config_tallies.values()), default=0.0)

    @property
    def watched(self) -> bool:
        return any(tally.watched for tally in self._config_tallies.values())

    def request(self, request: ServedRequest) -> None:
        self._requests.take(request)

    def count(self, config: str, counted: HopCounts, now: float, *, first: bool) -> None:
        # Without room, this configuration may have been dropped before, so its counts may be old.
        crowded = config not in self._config_tallies and len(self._config_tallies) >= MAX_CONFIGS
        self.config_tally(config).count(counted, now, first=first or crowded)

    def config_tally(self, config: str) -> _ConfigTally:
        """Returns the evidence for a configuration. If there is no room, it replaces the configuration with the oldest
        evidence."""
        tally = self._config_tallies.get(config)
        if tally is None:
            if len(self._config_tallies) >= MAX_CONFIGS:
                oldest = min(self._config_tallies, key=lambda name: self._config_tallies[name].heard)
                ended = summed([self._ended, self._config_tallies.pop(oldest).seen()], ())
                self._ended = msgspec.structs.replace(ended, last_success=0.0, last_failure=0.0)
            tally = self._config_tallies[config] = _ConfigTally(Connection(self._key, config))
        return tally

    def seen(self) -> HopSeen:
        """Lists the endpoints of the most recent configuration first, because the number of reported endpoints is limited."""
        tallies = sorted(self._config_tallies.values(), key=lambda tally: tally.heard, reverse=True)
        parts, traffic = [tally.seen() for tally in tallies], self._requests.traffic(sum(tally.active for tally in tallies))
        unchanged = len(parts) == len(self._parts) and all(map(operator.is_, parts, self._parts))
        if self._seen is None or not unchanged or self._seen.traffic is not traffic:
            self._parts = parts
            endpoints = (endpoint for part in parts for endpoint in part.endpoints)
            self._seen = msgspec.structs.replace(summed([*parts, self._ended], endpoints), traffic=traffic)
        return self._seen


class _Growth(NamedTuple):
    """The growth of a hop's counters since the last read."""

    connections: int = 0
    requests: int = 0
    failures: int = 0
    tls: Mapping[str, int] = MappingProxyType({})
    late: bool = False
    """Connections timed out."""

    @property
    def kind(self) -> str:
        """Returns the TLS failure that grew most; empty if none grew."""
        return max(self.tls, key=lambda name: self.tls[name], default="") if any(self.tls.values()) else ""


class _ConfigTally:
    """Collects the evidence for one configuration of a hop."""

    def __init__(self, key: Connection) -> None:
        self.key = key
        self.heard = 0.0
        """The time of the latest evidence."""
        self._endpoints: dict[str, _Endpoint] = {}
        self._connections, self._sent, self._connect_failures, self._timeouts, self._handshakes = (
            _Counter() for _ in range(5)
        )
        self._tls_failures: dict[str, _Counter] = {}
        self._counts = HopCounts()
        self._doubtful: list[ConnectionOutcome] = []
        self._errors = (0, 0)
        """TLS errors counted in the last two reads, because an error may be counted before its line is read."""
        self._refused = False
        """TLS errors of a stream were counted lately. With TLS 1.3 a connection is made before the backend rejects it, so a
        successful connection proves nothing."""
        self._failing = False
        """The last read counted failures."""
        self._unsampled = False
        """There are requests and no failures, and no sample of an endpoint."""
        self._sending = False
        """Requests were sent lately. Others may have failed without a connection."""
        self._kind, self._late = "", False
        """The TLS failure that the last read with failures counted most (empty: no TLS failure), and whether connections timed
        out."""
        self._seen: HopSeen | None = None

    @property
    def watched(self) -> bool:
        reasons = (self._failing, self._unsampled, self._unlogged, self._counts.ejected)
        return any(reasons) or any(endpoint.in_a_row for endpoint in self._endpoints.values())

    @property
    def _unlogged(self) -> bool:
        """Returns whether Envoy counted TLS errors of a stream whose log lines are overdue."""
        return self._refused and bool(self._errors[0]) and not self._endpoints and not self._unsampled

    def take(self, outcome: ConnectionOutcome) -> None:
        self._seen, self.heard = None, max(self.heard, outcome.at)
        if outcome.doubtful:
            self._doubtful = [*self._doubtful, outcome][-_MAX_DOUBTFUL:]
            return
        self._endpoint(outcome.address).take(outcome)
        if any(self._errors):
            self._endpoint(outcome.address).reclassify_as_client_certificate_rejection()
        if not outcome.failure and outcome.address:
            self._endpoints.pop("", None)  # the hop has endpoints again

    @property
    def active(self) -> int:
        return self._counts.active

    def count(self, counted: HopCounts, now: float, *, first: bool) -> None:
        """Records Envoy's counts for a hop. `first`: the counts may date from before this process started, so they prove
        nothing about the present."""
        if counted != self._counts:
            self._counts, self._seen = counted, None
        growth = self._growth(counted)
        if growth.connections or counted.active:
            self.heard = now
        if first:
            growth = _Growth(growth.connections, late=growth.late)
        self._failing, kind = bool(growth.failures), growth.kind
        if growth.failures or kind:
            self._kind, self._late = kind, growth.late
        self._errors = (self._errors[1], growth.tls.get("connection_error", 0))
        self._refused = not self.key.hop.protocol.http and any(self._errors)
        self._judge_doubtful()
        if any(self._errors):
            for endpoint in self._endpoints.values():
                endpoint.reclassify_as_client_certificate_rejection()
                self._seen = None
        good = not growth.failures and not kind
        self._unsampled, self._sending = bool(growth.requests) and good and not self._endpoints, bool(growth.requests)
        if kind:
            for endpoint in self._endpoints.values():
                # An endpoint may have counted the failure before, without its kind.
                endpoint.describe_from_counters(self._words, handshake=True)
        if good:
            self._mark_working(growth, now)

    def _growth(self, counted: HopCounts) -> _Growth:
        self._handshakes.take(counted.handshakes)
        return _Growth(
            self._connections.take(counted.connections),
            self._sent.take(counted.requests),
            self._connect_failures.take(counted.connect_failures),
            {name: self._tls_failures.setdefault(name, _Counter()).take(n) for name, n in counted.tls_failures.items()},
            self._timeouts.take(counted.connect_timeouts) > 0,
        )

    def _mark_working(self, growth: _Growth, now: float) -> None:
        """Marks endpoints as working if there is traffic and none of it fails, even without samples."""
        for endpoint in self._endpoints.values():
            if (
                growth.connections and now - endpoint.last_bad > SUCCESS_ASSUMED_AFTER
                if endpoint.in_a_row
                else growth.requests and endpoint.last_success
            ):
                endpoint.succeeded(now)
                self._seen = None

    def _judge_doubtful(self) -> None:
        for outcome in self._doubtful[: sum(self._errors)]:
            self._endpoint(outcome.address).take(outcome)
            self._seen = None
        self._doubtful = []

    def count_endpoints(self, counted: dict[str, EndpointCounts], now: float) -> None:
        self._seen, unlogged = None, self._unlogged
        words = in_words.counted_only(in_words.BROKEN_OFF) if unlogged else self._words
        for address, counts in counted.items():
            if address not in self._endpoints and not self._notice(address, counts, now, unlogged=unlogged):
                continue
            unlogged_failure = ConnectionOutcome(self.key.hop, address, now, words, handshake=bool(self._kind) or unlogged)
            if unlogged:
                self._endpoint(address).take(unlogged_failure)
            self._endpoint(address).count(
                counts, unlogged_failure, now, responses_prove_success=not self._refused, failing=self._failing
            )

    def _notice(self, address: str, counts: EndpointCounts, now: float, *, unlogged: bool) -> bool:
        """Returns whether the counters of an endpoint without log lines are evidence about it."""
        used = self._unsampled or (self._sending and counts.answers)
        if used and counts.connections > counts.connect_failures:
            self._endpoint(address).succeeded(now)
            return True
        return bool(counts.connect_failures or (unlogged and counts.connections))

    @property
    def _words(self) -> str:
        """Describes the last failures from the counters."""
        return in_words.of_counters(self._kind, timeout=self._late)

    def _endpoint(self, address: str) -> _Endpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if len(self._endpoints) >= MAX_ENDPOINTS:
                del self._endpoints[min(self._endpoints.values(), key=_importance).address]
            endpoint = self._endpoints[address] = _Endpoint(address, self.key.config)
        return endpoint

    def seen(self) -> HopSeen:
        if self._seen is None:
            endpoints = sorted(self._endpoints.values(), key=_importance, reverse=True)
            tls = {name: counter.total for name, counter in self._tls_failures.items() if counter.total}
            self._seen = HopSeen(
                self._handshakes.total,
                sum(tls.values()),
                self._connect_failures.total,
                tls,
                max((endpoint.last_success for endpoint in endpoints), default=0.0),
                max((endpoint.last_failure for endpoint in endpoints), default=0.0),
                tuple(endpoint.seen() for endpoint in endpoints),
            )
        return self._seen


class _Endpoint:
    def __init__(self, address: str, config: str) -> None:
        self.address, self._config = address, config
        self.failures = self.in_a_row = 0
        self.failure, self.handshake, self.request, self._refused = "", False, False, ""
        self._rejects = False
        """The endpoint has rejected the client certificate since its last success. Envoy counts no TLS error if a reset comes
        first."""
        self.failing_since = self.last_failure = self.last_success = 0.0
        self._certificate: LeafCertificate | None = None
        self._tls_version = self._cipher = ""
        self._counts: EndpointCounts | None = None
        self._logged = False
        """The log contained a failure since the last read of the counters."""
        self._from_log = False
        """The failure's reason is from the log."""
        self.ejected_since = self._last_ejected = 0.0

    def take(self, outcome: ConnectionOutcome) -> None:
        if outcome.failure:
            self._logged = self._from_log = True
            self.failure, self.handshake = outcome.failure, outcome.handshake
            self.request, self._refused = outcome.request, outcome.refused
            if self._rejects:
                self.reclassify_as_client_certificate_rejection()
            self._record_failure(outcome.at)
            return
        self.succeeded(outcome.at)
        self._certificate = outcome.certificate or self._certificate
        self._tls_version = outcome.tls_version or self._tls_version
        self._cipher = outcome.cipher or self._cipher

    @property
    def last_bad(self) -> float:
        """Returns the time of the last failure or ejection. An ejected endpoint has no connections that would show whether it
        still fails."""
        return max(self.last_failure, self._last_ejected)

    def _record_failure(self, at: float) -> None:
        self.failures += 1
        if not self.in_a_row:
            self.failing_since = at
        self.in_a_row += 1
        self.last_failure = max(self.last_failure, at)

    def reclassify_as_client_certificate_rejection(self) -> None:
        """Reinterprets failed requests as a rejected client certificate, because Envoy has counted TLS errors."""
        if self._refused:
            self.failure, self.handshake, self.request, self._refused = self._refused, True, False, ""
            self._rejects = True

    def describe_from_counters(self, words: str, *, handshake: bool) -> None:
        """Describes the failure from the counters, unless the log has given a better reason since the last success."""
        if self.in_a_row and not self._from_log and (handshake or not self.handshake):
            self.failure, self.handshake, self.request = words, handshake, False

    def succeeded(self, at: float) -> None:
        self.in_a_row, self._from_log, self.ejected_since = 0, False, 0.0
        self.handshake, self.request, self._refused, self._rejects = False, False, "", False
        self.last_success = max(self.last_success, at)

    def count(
        self,
        counts: EndpointCounts,
        unlogged_failure: ConnectionOutcome,
        now: float,
        *,
        responses_prove_success: bool,
        failing: bool,
    ) -> None:
        """Records Envoy's counts for an endpoint. `unlogged_failure` is recorded if the counts show a failure and no log line
        does. `failing`: the hop's failures have just grown."""
        last, self._counts = self._counts, counts
        logged, self._logged = self._logged, False
        if counts.ejected:
            self._ejected(counts, unlogged_failure, now)
        if last is None or counts.connections < last.connections:
            self._record_new_counters(
                counts,
                unlogged_failure,
                now,
                responses_prove_success=responses_prove_success,
                failing=failing and not logged and last is None,
            )
        elif counts.answers > last.answers:
            if responses_prove_success:
                self.succeeded(now)
        elif counts.connect_failures > last.connect_failures and not logged:
            self._record_failures(counts.connect_failures - last.connect_failures, unlogged_failure, now)

    def _ejected(self, counts: EndpointCounts, unlogged_failure: ConnectionOutcome, now: float) -> None:
        if not self.in_a_row and now - self._last_ejected > _MIN_EJECTION_GAP:
            # An ejection implies repeated failures, even if it was short.
            self._record_failures(counts.connect_failures, unlogged_failure, now)
        self.ejected_since, self._last_ejected = self.ejected_since or now, now

    def _record_new_counters(
        self,
        counts: EndpointCounts,
        unlogged_failure: ConnectionOutcome,
        now: float,
        *,
        responses_prove_success: bool,
        failing: bool,
    ) -> None:
        """Records counters that are new or were reset. They prove only whether a response has ever arrived."""
        if failing and counts.connections == counts.connect_failures > 0:
            # No connection ever succeeded, and retries may have hidden that before the counters were read.
            self._record_failures(counts.connect_failures, unlogged_failure, now)
        elif responses_prove_success and counts.answers and not self.last_success and self.in_a_row:
            self.last_success = self.failing_since - 1.0  # at an unknown earlier time

    def _record_failures(self, times: int, unlogged_failure: ConnectionOutcome, now: float) -> None:
        for _ in range(min(times, _MAX_FAILURES_PER_READ)):
            self._record_failure(now)
        self.describe_from_counters(unlogged_failure.failure, handshake=unlogged_failure.handshake)

    def seen(self) -> EndpointSeen:
        return EndpointSeen(
            self.address,
            self.failures,
            self.failure,
            self.handshake,
            self.in_a_row,
            self.failing_since if self.in_a_row else 0.0,
            self.last_failure,
            self.last_success,
            self._certificate,
            self._tls_version,
            self._cipher,
            self.ejected_since,
            self._config,
            self.request,
        )


def _importance(endpoint: _Endpoint) -> tuple[bool, float, str]:
    """Sorts failing endpoints first, then those with the latest evidence."""
    return bool(endpoint.in_a_row), max(endpoint.last_failure, endpoint.last_success), endpoint.address


def _bounded(outcome: ConnectionOutcome) -> ConnectionOutcome:
    """Makes every text printable and limits its length, because backends and clients have written them."""
    texts = {name: cut(getattr(outcome, name)) for name in ("failure", "refused", "tls_version", "cipher")}
    return msgspec.structs.replace(outcome, **texts, certificate=shown(outcome.certificate))
