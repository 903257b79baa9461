"""Events on objects (events.k8s.io/v1): what happened, where people look with `kubectl describe`.

The same thing on the same object is one Event; while it goes on, its series is counted up, at most once in ten minutes. Nobody
ever waits for an Event: what is too much is dropped and counted.
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

from lasthop.api.documents import Json
from lasthop.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.api.meta import Key
from lasthop.api.times import micro_now
from lasthop.kubernetes.client import Client, path_of
from lasthop.kubernetes.errors import ApiError
from lasthop.kubernetes.ratelimit import TokenBucket
from lasthop.plan.messages import NOTE, NOTE_BYTES, limited

EVERY: Final = 600.0
"""Seconds in which the same Event is told once."""
RATE: Final = 1.0
BURST: Final = 50
REMEMBERED: Final = 4096
QUEUED: Final = 256
GROUP: Final = "events.k8s.io"


class _What(NamedTuple):
    key: Key
    reason: str
    note: str


class _Told(msgspec.Struct):
    name: str
    at: float
    count: int = 1


class _Job(NamedTuple):
    what: _What
    uid: str
    action: str
    warning: bool
    again: _Told | None


class EventRecorder:
    def __init__(
        self,
        client: Client,
        instance: str,
        *,
        every: float = EVERY,
        rate: float = RATE,
        burst: int = BURST,
        may_write: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`instance` is who tells it: the pod's name. `may_write` is asked right before each request."""
        self.counts = Counter("lasthop_events", "Events of the cluster, by what came of them.", ["result"], registry=None)
        for result in ("told", "repeated", "suppressed", "dropped", "errors"):
            self.counts.labels(result)
        self._client, self._instance, self._every, self._clock = client, instance[:128], every, clock
        self._bucket = TokenBucket(rate, burst, clock)
        self._may_write = may_write
        self._told: OrderedDict[_What, _Told] = OrderedDict()
        self._queue: asyncio.Queue[_Job] = asyncio.Queue(QUEUED)

    def emit(self, key: Key, uid: str, reason: str, note: str, *, warning: bool = False, action: str = "Reconcile") -> None:
        """Says it unless it has been said lately. Never waits, never fails."""
        what = _What(key, reason[:128], limited(note, NOTE).encode()[:NOTE_BYTES].decode(errors="ignore"))
        told, now = self._told.get(what), self._clock()
        if told is not None:
            told.count += 1
            if now - told.at < self._every:
                self.counts.labels("suppressed").inc()
                return
        if not self._bucket.try_take() or self._queue.full():
            self.counts.labels("dropped").inc()
            return
        self._remember(what, now)
        self._queue.put_nowait(_Job(what, uid, action, warning, told))

    async def run(self) -> None:
        while True:
            job = await self._queue.get()
            if not self._may_write():
                self.counts.labels("dropped").inc()
                continue
            try:
                await self._tell(job)
            except ApiError:
                self.counts.labels("errors").inc()

    def _remember(self, what: _What, now: float) -> None:
        told = self._told.get(what)
        if told is None:
            digest = hashlib.blake2b(repr((what, time.time_ns())).encode(), digest_size=8).hexdigest()
            told = self._told[what] = _Told(f"{what.key.name[:230]}.{digest}", now)
        told.at = now
        self._told.move_to_end(what)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    async def _tell(self, job: _Job) -> None:
        told = job.again or self._told.get(job.what)
        if told is None:
            return
        namespace = job.what.key.namespace or "default"
        now = micro_now()
        if job.again is not None:
            series = {"series": {"count": max(2, told.count), "lastObservedTime": now}}
            try:
                await self._client.merge(path_of(GROUP, "v1", "events", namespace, told.name), series)
                self.counts.labels("repeated").inc()
                return
            except ApiError as error:
                if not error.not_found:  # Events live an hour
                    raise
        await self._client.create(path_of(GROUP, "v1", "events", namespace), self._event(job, told.name, namespace, now))
        self.counts.labels("told").inc()

    def _event(self, job: _Job, name: str, namespace: str, now: str) -> Json:
        key, kind = job.what.key, KINDS[job.what.key.kind]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now,
            "reportingController": CONTROLLER_NAME,
            "reportingInstance": self._instance,
            "action": job.action,
            "reason": job.what.reason,
            "note": job.what.note,
            "type": "Warning" if job.warning else "Normal",
            "regarding": {
                "apiVersion": kind.api_versions[0],
                "kind": key.kind,
                "name": key.name,
                "uid": job.uid,
                **({"namespace": key.namespace} if key.namespace else {}),
            },
        }
