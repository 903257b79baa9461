"""Records Events on objects (events.k8s.io/v1), which `kubectl describe` shows.

Equal events on the same object are one Event. While they continue, its series is incremented, at most once in ten minutes.
Recording never blocks: Events above the rate are dropped and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from prometheus_client import Counter

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.times import micro_now
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.ratelimit import TokenBucket
from lasthop.engine.plan.messages import NOTE, NOTE_BYTES, limited

REPEAT_SECONDS: Final = 600.0
"""Seconds within which equal Events are recorded once."""
RATE: Final = 1.0
BURST: Final = 50
MAX_REMEMBERED: Final = 4096
MAX_QUEUED: Final = 256
GROUP: Final = "events.k8s.io"


class _EventKey(NamedTuple):
    key: Key
    reason: str
    note: str


class _RecordedEvent(msgspec.Struct):
    name: str
    at: float
    count: int = 1


class _Job(NamedTuple):
    event: _EventKey
    uid: str
    warning: bool
    repeats: _RecordedEvent | None


class EventRecorder:
    def __init__(
        self,
        client: Client,
        instance: str,
        *,
        repeat_seconds: float = REPEAT_SECONDS,
        rate: float = RATE,
        burst: int = BURST,
        may_write: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`instance` is the reporting instance: the Pod's name. `may_write` is called right before each request."""
        self.counts = Counter("lasthop_events", "Events of the cluster, by result.", ["result"], registry=None)
        for result in ("recorded", "repeated", "suppressed", "dropped", "errors"):
            self.counts.labels(result)
        self._client, self._instance, self._repeat_seconds, self._clock = client, instance[:128], repeat_seconds, clock
        self._bucket = TokenBucket(rate, burst, clock)
        self._may_write = may_write
        self._recorded: OrderedDict[_EventKey, _RecordedEvent] = OrderedDict()
        self._queue: asyncio.Queue[_Job] = asyncio.Queue(MAX_QUEUED)

    def emit(self, key: Key, uid: str, reason: str, note: str, *, warning: bool = False) -> None:
        """Records an Event unless it was recorded recently. Never blocks, never fails."""
        event = _EventKey(key, reason[:128], limited(note, NOTE).encode()[:NOTE_BYTES].decode(errors="ignore"))
        record, now = self._recorded.get(event), self._clock()
        if record is not None:
            record.count += 1
            if now - record.at < self._repeat_seconds:
                self.counts.labels("suppressed").inc()
                return
        if not self._bucket.try_take() or self._queue.full():
            self.counts.labels("dropped").inc()
            return
        self._remember(event, now)
        self._queue.put_nowait(_Job(event, uid, warning, record))

    async def run(self) -> None:
        while True:
            job = await self._queue.get()
            if not self._may_write():
                self.counts.labels("dropped").inc()
                continue
            try:
                await self._write(job)
            except ApiError:
                self.counts.labels("errors").inc()

    def _remember(self, event: _EventKey, now: float) -> None:
        record = self._recorded.get(event)
        if record is None:
            digest = hashlib.blake2b(repr((event, time.time_ns())).encode(), digest_size=8).hexdigest()
            record = self._recorded[event] = _RecordedEvent(f"{event.key.name[:230]}.{digest}", now)
        record.at = now
        self._recorded.move_to_end(event)
        while len(self._recorded) > MAX_REMEMBERED:
            self._recorded.popitem(last=False)

    async def _write(self, job: _Job) -> None:
        record = job.repeats or self._recorded.get(job.event)
        if record is None:
            return
        namespace = job.event.key.namespace or "default"
        now = micro_now()
        if job.repeats is not None:
            series = {"series": {"count": max(2, record.count), "lastObservedTime": now}}
            try:
                await self._client.merge(path_of(GROUP, "v1", "events", namespace, record.name), series)
                self.counts.labels("repeated").inc()
                return
            except ApiError as error:
                if not error.not_found:  # Events expire after an hour
                    raise
        await self._client.create(path_of(GROUP, "v1", "events", namespace), self._event(job, record.name, namespace, now))
        self.counts.labels("recorded").inc()

    def _event(self, job: _Job, name: str, namespace: str, now: str) -> Json:
        key, kind = job.event.key, KINDS[job.event.key.kind]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now,
            "reportingController": CONTROLLER_NAME,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": job.event.reason,
            "note": job.event.note,
            "type": "Warning" if job.warning else "Normal",
            "regarding": {
                "apiVersion": kind.api_versions[0],
                "kind": key.kind,
                "name": key.name,
                "uid": job.uid,
                **({"namespace": key.namespace} if key.namespace else {}),
            },
        }
