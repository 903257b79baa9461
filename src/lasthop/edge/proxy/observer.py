"""Watches what an Envoy does on its hops: reads its samples and counters, and reports what they add up to. Decides which share
of the requests Envoy logs: all while they are few, and so many a second where they are more.

access.log ──failed()──┐
samples.log ───────────┼──> Tally ──every second──> ProxyReport
/stats, /clusters ─────┘
/runtime_modify <── the share that is logged
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
"""Seconds between two attempts to read counters for the first time."""
COUNT_INTERVAL: Final = 3.0
"""Seconds between two looks at all counters."""
COUNT_SHARE: Final = 0.05
"""Of the time that these looks may take: with thousands of hops they are rarer. Envoy answers on its main thread, which
handles no requests."""
APPLY_INTERVAL: Final = 10.0
"""Seconds after which the shares are told again, to an Envoy that may have been started since."""
SIZE_LIMIT: Final = 1024 * 1024
"""Bytes of samples.log at which it is truncated; samples that were not read by then are missed."""
ALL: Final = 1_000_000
SAMPLES: Final = 20.0
"""Lines a second. One costs Envoy a fifth of a request, most of it for the certificate (docs/measurements.md#observing)."""
FAILURES: Final = 200.0
TAPPED: Final = 1_000.0
"""Samples a second while somebody looks at requests."""
_SLACK: Final = 1.5
_FLOOD: Final = 10.0
"""How many times as much as is wanted is answered at once; less only if it lasts, so that a few requests are all logged."""
_SMOOTH: Final = 0.2
_HISTORY: Final = 16


class LogShare:
    """Of one log. Time is an argument."""

    def __init__(self, key: str, wanted: float) -> None:
        self.key, self.wanted = key, wanted
        self.value = ALL
        """Of a million."""
        self._average = 0.0
        self._history: deque[tuple[float, int]] = deque([(0.0, ALL)], maxlen=_HISTORY)

    def __repr__(self) -> str:
        return f"<{self.key}: {self.value / ALL:.2%}>"

    def adjust(self, lines: float, seconds: float) -> bool:
        """Takes how many lines were written in that time; returns whether the share is another one now."""
        rate, old = lines / max(seconds, 0.001), self.value
        self._average += _SMOOTH * (rate - self._average)
        if rate > self.wanted * _FLOOD:
            self._average = rate
        if self._average > self.wanted * _SLACK:
            self.value = max(1, round(old * self.wanted / self._average))
            self._average = self.wanted
        elif self._average < self.wanted / _SLACK and old < ALL:
            # Not at once: the next burst would be logged whole.
            self.value = min(ALL, 2 * old)
            self._average *= 2
        return self.value != old

    def applied(self, now: float) -> None:
        """Takes in that Envoy has it from now on."""
        if self._history[-1][1] != self.value:
            self._history.append((now, self.value))

    def weight(self, at: float) -> float:
        """Returns for how many a line stands that was written at that time."""
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
        """`feed` is for those who look at requests."""
        self._gateway, self._feed = gateway, feed
        self.tally = Tally(gateway, proxy, now=time.time())
        self._path, self._admin, self._report = samples, admin, report
        self._samples, self._failures = LogShare(SAMPLES_SHARE, SAMPLES), LogShare(FAILURES_SHARE, FAILURES)
        self._failed = 0.0

    def wrote(self, lines: float) -> None:
        """Takes how many lines Envoy has added to the log of failures. In a flood most are read late, or never: by those that
        are read, the share would be set too late, and go on falling when the flood is over."""
        self._failed += lines

    def failed(self, entry: AccessLogEntry) -> None:
        """Takes an entry of the log of failures."""
        if outcome := evidence.failure(entry):
            self._outcome(outcome, entry.upgrade)

    def stands_for(self, entry: AccessLogEntry) -> float:
        """Returns how many failed requests an entry stands for, which may have waited to be read."""
        return self._failures.weight(evidence.ended(entry))

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._look())

    async def _follow(self) -> None:
        tail = Tail(self._path, from_end=True, size_limit=SIZE_LIMIT)
        lines, since = 0, time.monotonic()
        try:
            while True:
                read = tail.read()
                for line in read:
                    self._take(line)
                skipped = tail.take_skipped().lines
                lines += len(read) + skipped
                if self._feed and skipped:
                    self._feed.skipped(skipped)
                now = time.monotonic()
                if now - since >= REPORT_INTERVAL / 2:
                    self._samples.wanted = TAPPED if self._feed and self._feed.open else SAMPLES
                    if self._samples.adjust(lines, now - since):
                        await self._apply(self._samples)
                    lines, since = 0, now
                await asyncio.sleep(0.01 if tail.behind else POLL_INTERVAL)
        finally:
            tail.close()

    def _take(self, line: bytes) -> None:
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
        for each in evidence.observed(outcome, upgrade=upgrade):
            self.tally.take(each)

    async def _look(self) -> None:
        counted = applied = since = -APPLY_INTERVAL
        interval = COUNT_INTERVAL
        while True:
            now = time.monotonic()
            if now - applied >= APPLY_INTERVAL:
                applied = now
                await self._apply(self._samples, self._failures)
            self._failures.wanted = TAPPED if self._feed and self._feed.open else FAILURES
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
                    # It has yet to start, so whatever it counts by the first answer is new.
                    self.tally.count({}, time.time())
            self._report(self.tally.report(time.time()))
            # What an Envoy that has just been started counts is to be told from what one had counted before.
            await asyncio.sleep(REPORT_INTERVAL if counted > 0 else START_INTERVAL)

    async def _apply(self, *shares: LogShare) -> None:
        try:
            await self._admin.set_runtime({share.key: share.value for share in shares})
        except AdminUnavailable:
            return
        for share in shares:
            share.applied(time.time())
