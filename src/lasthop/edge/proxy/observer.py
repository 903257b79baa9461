"""Observes an Envoy's hops: reads its samples and counters, and reports the result. Adjusts the share of requests that Envoy
logs. It logs all requests while there are few, otherwise a fixed number per second.

access.log ──failed()──┐
samples.log ───────────┼──> Tally ──every second──> ProxyReport
/stats, /clusters ─────┘
/runtime_modify <── the share of logged requests
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.evidence import ConnectionOutcome
from lasthop.edge.observe.tally import Tally
from lasthop.edge.proxy import evidence
from lasthop.edge.proxy.access_log import POLL_INTERVAL, Tail
from lasthop.edge.proxy.admin import Admin, AdminUnavailable
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.engine.outputs.envoy.access_log import FAILURES_SHARE, SAMPLES_SHARE
from lasthop.engine.plan.observation import ProxyReport

REPORT_INTERVAL: Final = 1.0
START_INTERVAL: Final = 0.1
"""Seconds between attempts to read counters for the first time."""
COUNT_INTERVAL: Final = 3.0
"""Seconds between reads of all counters."""
COUNT_SHARE: Final = 0.05
"""Share of the time that these reads may take, so that they are less frequent with thousands of hops. Envoy answers on its
main thread, which handles no requests."""
APPLY_INTERVAL: Final = 10.0
"""Seconds after which the shares are set again, because Envoy may have restarted."""
SIZE_LIMIT: Final = 1024 * 1024
"""Bytes at which samples.log is truncated; unread samples are lost."""
ALL: Final = 1_000_000
SAMPLES: Final = 20.0
"""Lines per second. A line costs Envoy a fifth of a request, mostly for the certificate (docs/measurements.md#observing)."""
FAILURES: Final = 200.0
FOLLOWED: Final = 1_000.0
"""Samples per second while a reader follows requests."""
_SLACK: Final = 1.5
_FLOOD: Final = 10.0
"""An excess by this factor lowers the share at once. A smaller excess lowers it only if it lasts, so that a few requests are
all logged."""
_SMOOTH: Final = 0.2
_HISTORY: Final = 16


class LogShare:
    """Adjusts the share of requests in one log. Time is an argument."""

    def __init__(self, key: str, target: float) -> None:
        self.key, self.target = key, target
        self.value = ALL
        """Parts per million."""
        self._average = 0.0
        self._history: deque[tuple[float, int]] = deque([(0.0, ALL)], maxlen=_HISTORY)

    def __repr__(self) -> str:
        return f"<{self.key}: {self.value / ALL:.2%}>"

    def adjust(self, lines: float, seconds: float) -> bool:
        """Adjusts the share to the number of lines written in that time; returns whether it has changed."""
        rate, previous = lines / max(seconds, 0.001), self.value
        self._average += _SMOOTH * (rate - self._average)
        if rate > self.target * _FLOOD:
            self._average = rate
        if self._average > self.target * _SLACK:
            self.value = max(1, round(previous * self.target / self._average))
            self._average = self.target
        elif self._average < self.target / _SLACK and previous < ALL:
            # Gradually, because otherwise the next burst would be logged completely.
            self.value = min(ALL, 2 * previous)
            self._average *= 2
        return self.value != previous

    def applied(self, now: float) -> None:
        """Records that Envoy uses the share from now on."""
        if self._history[-1][1] != self.value:
            self._history.append((now, self.value))

    def weight(self, at: float) -> float:
        """Returns the number of requests that a line of that time represents."""
        share = next((value for since, value in reversed(self._history) if since <= at), self._history[0][1])
        return ALL / share


class ProxyObserver:
    def __init__(
        self,
        gateway: Key,
        samples: Path,
        admin: Admin,
        report: Callable[[ProxyReport], None],
        *,
        proxy: str = "",
        feed: RequestFeed | None = None,
    ) -> None:
        """`feed` receives requests for readers that follow them."""
        self._gateway, self._feed = gateway, feed
        self.tally = Tally(gateway, proxy, now=time.time())
        self._path, self._admin, self._report = samples, admin, report
        self._samples, self._failures = LogShare(SAMPLES_SHARE, SAMPLES), LogShare(FAILURES_SHARE, FAILURES)
        self._failed = 0.0

    def wrote(self, lines: float) -> None:
        """Counts lines that Envoy has added to the log of failures. In a flood most are read late or never. A share based on
        the read lines would adapt too late, and keep falling after the flood."""
        self._failed += lines

    def failed(self, entry: AccessLogEntry) -> None:
        """Records an entry of the log of failures."""
        if outcome := evidence.failure(entry):
            self._outcome(outcome, entry.upgrade)

    def stands_for(self, entry: AccessLogEntry) -> float:
        """Returns the number of failed requests that an entry represents, even if it was read late."""
        return self._failures.weight(evidence.ended(entry))

    async def run(self) -> None:
        """Observes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._poll_counters())

    async def _follow(self) -> None:
        tail = Tail(self._path, from_end=True, size_limit=SIZE_LIMIT)
        lines, since = 0, time.monotonic()
        try:
            while True:
                new_lines = tail.read()
                for line in new_lines:
                    self._record(line)
                skipped = tail.take_skipped().lines
                lines += len(new_lines) + skipped
                if self._feed and skipped:
                    self._feed.skipped(skipped)
                now = time.monotonic()
                if now - since >= REPORT_INTERVAL / 2:
                    self._samples.target = FOLLOWED if self._feed and self._feed.open else SAMPLES
                    if self._samples.adjust(lines, now - since):
                        await self._apply(self._samples)
                    lines, since = 0, now
                await asyncio.sleep(0.01 if tail.behind else POLL_INTERVAL)
        finally:
            tail.close()

    def _record(self, line: bytes) -> None:
        sample = evidence.parse_sample(line)
        if sample is None:
            return
        if self._feed and self._feed.open and (entry := evidence.entry(sample, self._gateway)):
            self._feed.publish(msgspec.structs.replace(entry, stands_for=self._samples.weight(sample.ended)))
        if outcome := evidence.success(sample):
            self._outcome(outcome, sample.upgrade)
        if request := evidence.request(sample, self._samples.weight(sample.ended)):
            self.tally.request(request)

    def _outcome(self, outcome: ConnectionOutcome, upgrade: bool | None) -> None:
        for hop_outcome in evidence.observed(outcome, upgrade=upgrade):
            self.tally.take(hop_outcome)

    async def _poll_counters(self) -> None:
        counted = applied = since = -APPLY_INTERVAL
        interval = COUNT_INTERVAL
        while True:
            now = time.monotonic()
            if now - applied >= APPLY_INTERVAL:
                applied = now
                await self._apply(self._samples, self._failures)
            self._failures.target = FOLLOWED if self._feed and self._feed.open else FAILURES
            if self._failures.adjust(self._failed, now - since):
                await self._apply(self._failures)
            self._failed, since = 0.0, now
            try:
                if now - counted >= interval:
                    self.tally.count(await self._admin.hop_counts(), time.time())
                    counted, interval = now, max(COUNT_INTERVAL, (time.monotonic() - now) / COUNT_SHARE)
                if watched := self.tally.watched():
                    self.tally.count_endpoints(await self._admin.endpoint_counts(watched), time.time())
            except AdminUnavailable as error:
                if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
                    # Envoy has not started yet, so the counts of its first answer are new.
                    self.tally.count({}, time.time())
            self._report(self.tally.report(time.time()))
            # Counts of a newly started Envoy must be distinguishable from counts before this process started.
            await asyncio.sleep(REPORT_INTERVAL if counted > 0 else START_INTERVAL)

    async def _apply(self, *shares: LogShare) -> None:
        try:
            await self._admin.set_runtime({share.key: share.value for share in shares})
        except AdminUnavailable:
            return
        for share in shares:
            share.applied(time.time())
