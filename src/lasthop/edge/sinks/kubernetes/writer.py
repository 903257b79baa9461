"""Writes changed statuses to the cluster: our part only, only while this replica leads, and within a rate.

want({key: status}) ──> queue of keys ──> N writers ──> merge with the current ──> PUT /status with resourceVersion
     the newest wins        │ small batches go first         └─ equal: nothing to do   └─ 409: read, merge, again
                            │ at the server's pace
                            └─ waits while we do not lead
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from prometheus_client import Counter

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.status import Status
from lasthop.base.api.times import rfc3339
from lasthop.base.text.logs import LOG
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import RESET, ApiError
from lasthop.edge.kubernetes.objects import observed_status
from lasthop.edge.kubernetes.observed import ObservedStatuses
from lasthop.edge.kubernetes.ratelimit import Backoff, Pace
from lasthop.edge.sinks.kubernetes.merge import Outdated, generation, merged, rendered, without_observations

CONFLICTS: Final = 5
"""Attempts to read and merge again at once, before other objects have their turn."""
FIRST_IN_A_ROW: Final = 4
LOOK_AGAIN: Final = 0.5
"""Seconds until a premature write is retried; a new status is tried at once."""
LONGEST_PAUSE: Final = 10.0
"""Seconds between two attempts while the server does not respond."""


class WriteLimits(msgspec.Struct, frozen=True):
    in_flight: int = 8
    rate: float = 100.0
    """Initial writes per second."""
    most: float = 1000.0
    """Writes per second while the server responds quickly."""
    burst: int = 100
    few: int = 50
    """Maximum size of a batch that goes first, because a user waits for the effect of an edit. Larger batches come from a
    start or a shared object."""
    calm: float = 0.05
    """Seconds without a new status before the first is written, because a user who makes many edits at once shares the server
    with us."""
    longest_calm: float = 0.5
    """Maximum seconds from the first status to its write, because the user waits for the effect of the edits."""
    dispute: float = 1.0
    """Seconds between two writes to an object that another controller keeps rewriting."""
    observations: float = 30.0
    """Seconds after any write before a write that contains only observations, because backends decide how often these
    change."""


LIMITS: Final = WriteLimits()


class WriteGuard:
    """Permits each write and is notified of it. This class permits all writes; a subclass overrides the methods it needs."""

    def may_write(self) -> bool:
        """Returns whether we still lead; called right before each write."""
        return True

    def premature(self, key: Key, before: Json, after: Json) -> bool:
        """Returns whether to delay this change."""
        return False

    def written(self, key: Key, before: Json, after: Json) -> None: ...


class StatusWriter:
    def __init__(
        self,
        client: Client,
        observed: ObservedStatuses,
        *,
        guard: WriteGuard | None = None,
        limits: WriteLimits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.counts = Counter("lasthop_status_writes", "Statuses processed, by result.", ["result"], registry=None)
        self._writes, self._unchanged, self._conflicts, self._errors, self._outdated = (
            self.counts.labels(result) for result in ("writes", "unchanged", "conflicts", "errors", "outdated")
        )
        self._client, self._observed = client, observed
        self._guard, self._limits = guard or WriteGuard(), limits
        self._pace = Pace(limits.rate, limits.most, limits.burst, clock)
        self._clock, self._sleep = clock, sleep
        self._wanted: dict[Key, Status | None] = {}
        self._queue: OrderedDict[Key, None] = OrderedDict()
        """Keys to process, in order, each once. A dict would need time proportional to the removed keys to find its first
        key."""
        self._first: OrderedDict[Key, None] = OrderedDict()
        """Keys to process before those that are only in `_queue`."""
        self._turn = 0
        self._busy: set[Key] = set()
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._backoffs: dict[Key, Backoff] = {}
        self._written: dict[Key, float] = {}
        self._since = self._calm = 0.0
        """The arrival time of the oldest waiting status, and the time until which all of them wait."""
        self._work, self._leading = asyncio.Event(), asyncio.Event()
        self._choosing = asyncio.Lock()
        """Held by the writer that waits for work, so that a new status wakes one of them."""
        self._log = LOG
        observed.on_change = self._seen

    def __repr__(self) -> str:
        state = "leading" if self.leading else "waiting"
        return f"<StatusWriter {state}, {len(self._queue)} queued, {len(self._busy)} in flight>"

    # --- interface ---------------------------------------------------------------------------------------------------

    def want(self, changes: Mapping[Key, Status | None]) -> None:
        """Queues the newest statuses of these objects. Never blocks."""
        now = self._clock()
        if not self._queue and not self._busy:
            self._since = now
        if changes:
            self._calm = min(now + self._limits.calm, self._since + self._limits.longest_calm)
        for key, status in changes.items():
            self._wanted[key] = status
            self._backoffs.pop(key, None)
            self._enqueue(key)
        if len(changes) <= self._limits.few:
            self._first |= dict.fromkeys(changes)

    @property
    def leading(self) -> bool:
        return self._leading.is_set()

    def lead(self, leading: bool) -> None:
        """Starts or stops writing. A follower writes nothing from its queue; a new leader writes every status that differs."""
        if not leading:
            self._leading.clear()
            return
        for key in self._wanted:
            self._enqueue(key)
        self._leading.set()

    @property
    def waiting(self) -> set[Key]:
        """Returns the objects whose status is written later, unless a newer status arrives before."""
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
        self._cancel_later(key)
        self._queue[key] = None
        self._work.set()

    def _enqueue_later(self, key: Key, pause: float) -> None:
        if key not in self._later and key not in self._queue:
            self._later[key] = asyncio.get_running_loop().call_later(pause, self._enqueue, key)

    def _cancel_later(self, key: Key) -> None:
        if timer := self._later.pop(key, None):
            timer.cancel()

    def _seen(self, key: Key) -> None:
        """Handles a write by another client. If it changed our part, that part is restored after the dispute interval."""
        if key not in self._wanted:
            return
        wait = self._limits.dispute - (self._clock() - self._written.get(key, -self._limits.dispute))
        if key in self._busy:  # possibly our own write: the watch may be faster than the response
            wait = self._limits.dispute
        if wait > 0:
            self._enqueue_later(key, wait)
        else:
            self._enqueue(key)

    async def _next(self) -> Key:
        while True:
            await self._leading.wait()
            # Every few turns an object outside of `_first` has its turn, however many edits there are.
            self._turn += 1
            queues = (self._queue,) if self._turn % FIRST_IN_A_ROW == 0 else (self._first, self._queue)
            key = next((key for queue in queues for key in queue if key not in self._busy), None)
            if key is not None and (wait := self._calm - self._clock()) > 0:
                await self._sleep(wait)
            elif key is not None:
                del self._queue[key]
                self._first.pop(key, None)
                return key
            else:
                self._work.clear()
                await self._work.wait()

    async def _writer(self) -> None:
        while True:
            async with self._choosing:
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
        """Writes until the object has our status, or postpones it."""
        try:
            for attempt in range(CONFLICTS):
                if not await self._write(key, fresh=attempt > 0):
                    return
            self._enqueue_later(key, self._limits.dispute)
        except Outdated:
            self._outdated.inc()  # the watch delivers the newer generation, and with it a new status
        except ApiError as error:
            self._failed(key, error)

    async def _write(self, key: Key, *, fresh: bool) -> bool:
        """Tries to write once; returns whether to retry after a conflict."""
        kind, version = KINDS[key.kind], self._observed.versions.get(key.kind)
        if version is None or key not in self._wanted:
            return False
        path = path_of(kind.group, version, kind.plural, key.namespace, key.name)
        if fresh:
            self._observe(key, await self._client.request("GET", path))
        seen = self._observed.get(key)
        if seen is None:  # deleted, according to the watch
            self._wanted.pop(key)
            return False
        ours = rendered(self._wanted[key], key.kind)
        if generation(ours) > seen.generation:  # the object was replaced by one of the same name
            raise Outdated
        current: Json = msgspec.json.decode(seen.status) if seen.status else {}
        status = merged(current, ours, rfc3339(time.time()), key.namespace, key.kind)
        if not self._is_due(key, current, status):
            return False
        await self._sleep(self._pace.take())
        if not (self.leading and self._guard.may_write()):
            self._enqueue(key)
            return False
        body = {
            "apiVersion": f"{kind.group}/{version}",
            "kind": kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": seen.version},
            "status": status,
        }
        response = await self._put(f"{path}/status", body)
        if response is None:
            return True
        self._writes.inc()
        self._written[key] = self._clock()
        self._backoffs.pop(key, None)
        version = self._observe(key, response)
        if (newest := self._observed.get(key)) and newest.version == version:  # the watch has delivered only our own write
            self._cancel_later(key)
        self._guard.written(key, current, status)
        return False

    def _is_due(self, key: Key, current: Json, status: Json) -> bool:
        """Returns whether to write now; otherwise queues a later write."""
        if status == current:
            self._unchanged.inc()
            if self._wanted[key] is None:
                del self._wanted[key]
            return False
        if self._guard.premature(key, current, status):
            self._enqueue_later(key, LOOK_AGAIN)
            return False
        if (wait := self._observations_wait(key, current, status)) > 0:
            self._enqueue_later(key, wait)
            return False
        return True

    async def _put(self, path: str, body: Json) -> bytes | None:
        """Returns the object as written; None if another writer was first."""
        started = self._clock()
        try:
            response = await self._client.request("PUT", path, body=body)
        except ApiError as error:
            if error.transient:
                self._pace.refused()
            if not error.conflict:
                raise
            self._conflicts.inc()
            return None
        self._pace.answered(self._clock() - started)
        return response

    def _observations_wait(self, key: Key, current: Json, status: Json) -> float:
        """Returns the seconds to wait before a write that contains only observations."""
        wait = self._limits.observations - (self._clock() - self._written.get(key, -self._limits.observations))
        return wait if wait > 0 and without_observations(current) == without_observations(status) else 0.0

    def _observe(self, key: Key, response: bytes) -> str:
        """Records the object in the server's response, and returns its version."""
        try:
            status = observed_status(response)
        except msgspec.DecodeError as error:
            raise ApiError(0, RESET, f"not an object: {response[:100]!r}") from error
        self._observed.put(key, status)
        return status.version

    def _failed(self, key: Key, error: ApiError) -> None:
        if error.not_found:
            self._observed.forget(key)
            if key not in self._queue:  # otherwise there is a newer status, perhaps of a new object of that name
                self._wanted.pop(key, None)
            return
        self._errors.inc()
        if not error.transient:  # an unavailable server is reported elsewhere, once
            self._log.warning("status not written", object=str(key), error=str(error))
        if error.transient or error.denied:
            pause = self._backoffs.setdefault(key, Backoff(0.5, LONGEST_PAUSE)).next(at_least=error.retry_after)
            self._enqueue_later(key, pause)
