"""Writes statuses to the cluster: our part only, only what is new, only while we lead, and not too fast.

want({key: status}) ──> queue of keys ──> N writers ──> merge with the current ──> PUT /status with resourceVersion
     the newest wins        │ rate limit                     └─ equal: nothing to do   └─ 409: read, merge, again
                            └─ waits while we do not lead
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import Counter

from lasthop.api.documents import Json
from lasthop.api.kinds import KINDS
from lasthop.api.meta import Key
from lasthop.api.status import Status
from lasthop.api.times import rfc3339
from lasthop.kubernetes.client import Client, path_of
from lasthop.kubernetes.errors import ApiError
from lasthop.kubernetes.observed import ObservedStatus, ObservedStatuses
from lasthop.kubernetes.ratelimit import Backoff, TokenBucket
from lasthop.sinks.kubernetes.merge import Outdated, generation, merged, rendered, without_observations

CONFLICTS: Final = 5
"""How often to read and merge again at once, before other objects have their turn."""
LOOK_AGAIN: Final = 0.5
"""Seconds until a premature write is tried again; a new status is tried at once."""
LONGEST_PAUSE: Final = 10.0
"""Seconds between two attempts while the server does not answer."""


class Limits(msgspec.Struct, frozen=True):
    in_flight: int = 8
    rate: float = 100.0
    burst: int = 100
    """5,000 routes and their policies after a first start are written in 100 s; a small cluster does not notice the limit."""
    dispute: float = 1.0
    """Seconds between two writes to an object that another controller keeps rewriting."""
    observations: float = 30.0
    """Seconds after any write before one that only tells what was seen on the wire: backends decide how often that changes."""


LIMITS: Final = Limits()


class WriteGuard:
    """Decides about each write and is informed of it. Allows everything; a subclass overrides what it needs."""

    def may_write(self) -> bool:
        """Returns whether we still lead; called right before each write."""
        return True

    def premature(self, key: Key, before: Json, after: Json) -> bool:
        """Returns whether to delay the change from one status to the other."""
        return False

    def written(self, key: Key, before: Json, after: Json) -> None: ...


class StatusWriter:
    def __init__(
        self,
        client: Client,
        observed: ObservedStatuses,
        *,
        guard: WriteGuard | None = None,
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.counts = Counter("lasthop_status_writes", "Statuses processed, by result.", ["result"], registry=None)
        for result in ("writes", "unchanged", "conflicts", "errors", "outdated"):
            self.counts.labels(result)
        self._client, self._observed = client, observed
        self._guard, self._limits, self._bucket = guard or WriteGuard(), limits, TokenBucket(limits.rate, limits.burst, clock)
        self._clock, self._sleep = clock, sleep
        self._wanted: dict[Key, Status | None] = {}
        self._queue: dict[Key, None] = {}
        """Keys to process, in order; a dict, so that each occurs once."""
        self._busy: set[Key] = set()
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._backoffs: dict[Key, Backoff] = {}
        self._written: dict[Key, float] = {}
        self._work, self._leading = asyncio.Event(), asyncio.Event()
        self._log: Any = structlog.get_logger()
        observed.on_change = self._seen

    def __repr__(self) -> str:
        state = "leading" if self.leading else "waiting"
        return f"<StatusWriter {state}, {len(self._queue)} queued, {len(self._busy)} in flight>"

    # --- interface ---------------------------------------------------------------------------------------------------

    def want(self, changes: Mapping[Key, Status | None]) -> None:
        """Takes the newest statuses of these objects. Never waits."""
        for key, status in changes.items():
            self._wanted[key] = status
            self._backoffs.pop(key, None)
            self._enqueue(key)

    @property
    def leading(self) -> bool:
        return self._leading.is_set()

    def lead(self, leading: bool) -> None:
        """Starts or stops writing. A follower sends nothing that is queued; a new leader writes everything that differs."""
        if not leading:
            self._leading.clear()
            return
        for key in self._wanted:
            self._enqueue(key)
        self._leading.set()

    @property
    def waiting(self) -> set[Key]:
        """Objects whose status is written later, unless a newer one comes before."""
        return set(self._later)

    @property
    def pending(self) -> int:
        return len(self._queue) + len(self._busy) + len(self._later)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._limits.in_flight):
                    tasks.create_task(self._writer())
        finally:
            for timer in self._later.values():
                timer.cancel()

    # --- the queue ---------------------------------------------------------------------------------------------------

    def _enqueue(self, key: Key) -> None:
        if timer := self._later.pop(key, None):
            timer.cancel()
        self._queue[key] = None
        self._work.set()

    def _enqueue_later(self, key: Key, pause: float) -> None:
        if key not in self._later and key not in self._queue:
            self._later[key] = asyncio.get_running_loop().call_later(pause, self._enqueue, key)

    def _seen(self, key: Key) -> None:
        """Reacts to a write by someone else. If it changed our part, that is restored, but not in a race."""
        if key not in self._wanted:
            return
        wait = self._limits.dispute - (self._clock() - self._written.get(key, -self._limits.dispute))
        if key in self._busy:  # perhaps our own write, and the watch is quicker than the response
            wait = self._limits.dispute
        if wait > 0:
            self._enqueue_later(key, wait)
        else:
            self._enqueue(key)

    async def _next(self) -> Key:
        while True:
            await self._leading.wait()
            key = next((key for key in self._queue if key not in self._busy), None)
            if key is not None:
                del self._queue[key]
                return key
            self._work.clear()
            await self._work.wait()

    async def _writer(self) -> None:
        while True:
            key = await self._next()
            self._busy.add(key)
            try:
                await self._settle(key)
            finally:
                self._busy.discard(key)
                if self._queue:
                    self._work.set()

    # --- one object --------------------------------------------------------------------------------------------------

    async def _settle(self, key: Key) -> None:
        """Writes until the object has our status, or leaves it for later."""
        try:
            for attempt in range(CONFLICTS):
                if not await self._write(key, fresh=attempt > 0):
                    return
            self._enqueue_later(key, self._limits.dispute)
        except Outdated:
            self.counts.labels("outdated").inc()  # the watch brings the newer generation, and with it a new status
        except ApiError as error:
            self._failed(key, error)

    async def _write(self, key: Key, *, fresh: bool) -> bool:
        """Tries to write once, and returns whether to retry after a conflict."""
        kind, version = KINDS[key.kind], self._observed.versions.get(key.kind)
        if version is None or key not in self._wanted:
            return False
        if fresh:
            self._observe(key, await self._client.get(path_of(kind.group, version, kind.plural, key.namespace, key.name)))
        seen = self._observed.get(key)
        if seen is None:  # deleted, according to the watch
            self._wanted.pop(key)
            return False
        ours = rendered(self._wanted[key], key.kind)
        if generation(ours) > seen.generation:  # by now another object of the same name
            raise Outdated
        current: Json = msgspec.json.decode(seen.status) if seen.status else {}
        status = merged(current, ours, rfc3339(time.time()), key.namespace, key.kind)
        if status == current:
            self.counts.labels("unchanged").inc()
            if self._wanted[key] is None:
                del self._wanted[key]
            return False
        if self._guard.premature(key, current, status):
            self._enqueue_later(key, LOOK_AGAIN)
            return False
        if (wait := self._observations_wait(key, current, status)) > 0:
            self._enqueue_later(key, wait)
            return False
        await self._sleep(self._bucket.take())
        if not (self.leading and self._guard.may_write()):
            self._enqueue(key)
            return False
        body = {
            "apiVersion": f"{kind.group}/{version}",
            "kind": kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": seen.version},
            "status": status,
        }
        try:
            answer = await self._client.put(path_of(kind.group, version, kind.plural, key.namespace, key.name, "status"), body)
        except ApiError as error:
            if not error.conflict:
                raise
            self.counts.labels("conflicts").inc()
            return True
        self.counts.labels("writes").inc()
        self._written[key] = self._clock()
        self._backoffs.pop(key, None)
        self._observe(key, answer)
        self._guard.written(key, current, status)
        return False

    def _observations_wait(self, key: Key, current: Json, status: Json) -> float:
        """Returns how long to wait before a write that only tells what was seen on the wire."""
        wait = self._limits.observations - (self._clock() - self._written.get(key, -self._limits.observations))
        return wait if wait > 0 and without_observations(current) == without_observations(status) else 0.0

    def _observe(self, key: Key, answer: dict[str, Any]) -> None:
        status = msgspec.json.encode(answer["status"]) if answer.get("status") else b""
        meta = answer["metadata"]
        self._observed.put(key, ObservedStatus(meta["resourceVersion"], status, meta.get("generation", 0)))

    def _failed(self, key: Key, error: ApiError) -> None:
        if error.not_found:
            self._observed.forget(key)
            if key not in self._queue:  # else there is a newer status, perhaps of a new object of that name
                self._wanted.pop(key, None)
            return
        self.counts.labels("errors").inc()
        if not error.transient:  # an unavailable server is reported elsewhere, once
            self._log.warning("status not written", object=str(key), error=str(error))
        if error.transient or error.denied:
            pause = self._backoffs.setdefault(key, Backoff(0.5, LONGEST_PAUSE)).next(at_least=error.retry_after)
            self._enqueue_later(key, pause)
