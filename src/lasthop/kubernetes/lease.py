"""Who writes: a Lease (coordination.k8s.io/v1), held as client-go holds one.

Clocks of different machines are never compared: a follower takes over when it has not seen the Lease change for as long as the
Lease lasts, by its own clock; a leader stops earlier than that, by its own clock, counted from before it asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

import msgspec
import structlog

from lasthop.api.documents import Json
from lasthop.api.times import micro_now
from lasthop.kubernetes.client import Client, path_of
from lasthop.kubernetes.errors import ApiError


class Timing(msgspec.Struct, frozen=True):
    """In seconds."""

    duration: int = 10
    """How long a Lease lasts. A dead leader is replaced after this and two looks: within 12 s, and the promise is 15."""
    renew_deadline: float = 7.0
    """When a leader that could not renew stops, well before another may start."""
    renew_interval: float = 2.5
    look_interval: float = 1.0


TIMING: Final = Timing()


class Leadership:
    """Hears when the Lease comes to us and goes; overrides what it needs."""

    def started_leading(self) -> None: ...

    def stopped_leading(self) -> None: ...


class Next(Enum):
    CREATE = auto()
    TAKE = auto()
    RENEW = auto()
    WAIT = auto()


class Seen(msgspec.Struct, frozen=True):
    """A Lease as it was when it last changed, and when that was by our own clock."""

    record: tuple[Any, ...]
    at: float


def record_of(lease: Json) -> tuple[Any, ...]:
    spec = lease.get("spec") or {}
    return tuple(spec.get(field) for field in ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions"))


def decide(lease: Json | None, seen: Seen | None, identity: str, now: float) -> Next:
    """What to do about the Lease."""
    if lease is None:
        return Next.CREATE
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return Next.RENEW
    if not holder:
        return Next.TAKE
    lasts = spec.get("leaseDurationSeconds") or TIMING.duration
    expired = seen is not None and seen.record == record_of(lease) and now - seen.at >= lasts
    return Next.TAKE if expired else Next.WAIT


def taken(lease: Json, identity: str, now: str, duration: int, annotations: Mapping[str, str]) -> Json:
    """The Lease as it is when we hold it. What we do not know in it stays."""
    spec, meta = dict(lease.get("spec") or {}), dict(lease.get("metadata") or {})
    if spec.get("holderIdentity") != identity:
        if "holderIdentity" in spec:
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
        spec["acquireTime"] = now
    spec.update(holderIdentity=identity, leaseDurationSeconds=duration, renewTime=now)
    if annotations:
        meta["annotations"] = {**(meta.get("annotations") or {}), **annotations}
    return {**lease, "metadata": meta, "spec": spec}


class LeaderElector:
    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        leadership: Leadership,
        *,
        annotations: Mapping[str, str] | None = None,
        timing: Timing = TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`annotations` are put on the Lease while we hold it: where followers find the leader."""
        self.leading = False
        self.holder = ""
        """Who holds the Lease, as last seen."""
        self.holder_annotations: dict[str, str] = {}
        self._client, self._identity = client, identity
        self._collection = path_of("coordination.k8s.io", "v1", "leases", namespace)
        self._path = path_of("coordination.k8s.io", "v1", "leases", namespace, name)
        self._empty: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
        }
        self._annotations = dict(annotations or {})
        self._leadership, self._timing, self._clock = leadership, timing, clock
        self._lease: Json | None = None
        self._seen: Seen | None = None
        self._renewed = 0.0
        self._told = ""
        self._log: Any = structlog.get_logger()

    @property
    def certain(self) -> bool:
        """Leading, and the Lease is surely still ours: also right after the process has been frozen for a while."""
        return self.leading and self._clock() - self._renewed < self._timing.duration

    async def run(self) -> None:
        """Until cancelled; then the Lease is given back, so that another need not wait for its end."""
        try:
            while True:
                await self._follow()
                self._start()
                await self._lead()
                self._stop()
        finally:
            if self.leading:
                self._stop()
                await asyncio.shield(self._release())

    async def _follow(self) -> None:
        """Ends when the Lease is ours."""
        while True:
            if await self._attempt():
                return
            await asyncio.sleep(self._timing.look_interval)

    async def _lead(self) -> None:
        """Ends when it is no longer certain that the Lease is ours."""
        while True:
            await asyncio.sleep(self._timing.renew_interval)
            while not await self._in_time():
                if self._clock() - self._renewed >= self._timing.renew_deadline or self.holder != self._identity:
                    return
                await asyncio.sleep(min(0.5, self._timing.look_interval))

    async def _in_time(self) -> bool:
        """One renewal, which must not take longer than the Lease is still surely ours."""
        try:
            async with asyncio.timeout(max(0.0, self._renewed + self._timing.renew_deadline - self._clock())):
                return await self._attempt()
        except TimeoutError:
            return False

    async def _attempt(self) -> bool:
        """Looks at the Lease and takes or renews it if it may. Says whether it is ours."""
        asked = self._clock()
        try:
            if not self.leading or self._lease is None:
                await self._look()
            match decide(self._lease, self._seen, self._identity, self._clock()):
                case Next.WAIT:
                    return False
                case Next.CREATE:
                    body = taken(self._empty, self._identity, micro_now(), self._timing.duration, self._annotations)
                    self._saw(await self._client.create(self._collection, body))
                case _:
                    body = taken(self._lease or {}, self._identity, micro_now(), self._timing.duration, self._annotations)
                    self._saw(await self._client.put(self._path, body))
        except ApiError as error:
            self._lease = None  # look again before the next attempt: somebody else may have it
            if str(error) != self._told and not error.conflict:
                self._told = str(error)
                self._log.warning("lease not reached", lease=self._path, error=str(error))
            return False
        self._renewed, self._told = asked, ""
        return True

    async def _look(self) -> None:
        try:
            self._saw(await self._client.get(self._path))
        except ApiError as error:
            if not error.not_found:
                raise
            self._lease, self._seen, self.holder = None, None, ""

    def _saw(self, lease: Json) -> None:
        self._lease = lease
        record = record_of(lease)
        if self._seen is None or self._seen.record != record:
            self._seen = Seen(record, self._clock())
        self.holder = record[0] or ""
        self.holder_annotations = (lease.get("metadata") or {}).get("annotations") or {}

    def _start(self) -> None:
        self.leading = True
        self._log.info("leading", identity=self._identity)
        self._leadership.started_leading()

    def _stop(self) -> None:
        self.leading = False
        self._log.warning("no longer leading", identity=self._identity)
        self._leadership.stopped_leading()

    async def _release(self) -> None:
        lease = self._lease
        if lease is None:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_now()}
        try:
            await self._client.request("PUT", self._path, body={**lease, "spec": spec}, within=2.0)
        except ApiError as error:
            self._log.info("lease not given back; it ends by itself", error=str(error))
