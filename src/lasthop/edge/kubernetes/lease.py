"""Elects the leader, the only replica that writes, with a Lease (coordination.k8s.io/v1), like client-go.

Clocks of different machines are never compared. A follower takes over when the Lease has not changed for its whole duration by
the follower's own clock. A leader stops earlier than that by its own clock, counted from before its request.

    thread "lease": its own event loop and connection            main thread
    term 1 ──> renew ─ renew ─ ... ──> lost ──> term 2           started_leading(1) ─> stopped_leading ─> started_leading(2)

A busy event loop must not lose the Lease, so another thread renews it. The main thread leads in the term that it has
processed, and is certain only while the thread holds that same term. A term that was lost and won again meanwhile counts as
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.times import micro_now
from lasthop.base.text.logs import LOG
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError


class LeaseTiming(msgspec.Struct, frozen=True):
    """Intervals in seconds."""

    duration: int = 10
    """Duration of a Lease. A dead leader is replaced after this time and two polls, within 12 s; the promise is 15 s."""
    renew_deadline: float = 7.0
    """Seconds without renewal after which a leader stops leading, well before another replica may take over."""
    renew_interval: float = 2.5
    look_interval: float = 1.0


TIMING: Final = LeaseTiming()


class Leadership:
    """Callbacks for the start and end of leading; a subclass overrides those it needs."""

    def started_leading(self) -> None: ...

    def stopped_leading(self) -> None: ...


class LeaseAction(Enum):
    CREATE = auto()
    TAKE = auto()
    RENEW = auto()
    WAIT = auto()


class LeaseObservation(msgspec.Struct, frozen=True):
    """Records a Lease at its last observed change, with the time of that change by our own clock."""

    record: tuple[Any, ...]
    at: float


def record_of(lease: Json) -> tuple[Any, ...]:
    spec = lease.get("spec") or {}
    return tuple(spec.get(field) for field in ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions"))


def decide(lease: Json | None, seen: LeaseObservation | None, identity: str, now: float) -> LeaseAction:
    if lease is None:
        return LeaseAction.CREATE
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return LeaseAction.RENEW
    if not holder:
        return LeaseAction.TAKE
    duration = spec.get("leaseDurationSeconds") or TIMING.duration
    expired = seen is not None and seen.record == record_of(lease) and now - seen.at >= duration
    return LeaseAction.TAKE if expired else LeaseAction.WAIT


def acquired(lease: Json, identity: str, now: str, duration: int, annotations: Mapping[str, str]) -> Json:
    """Returns the Lease with this replica as holder. Unknown fields are kept."""
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
        timing: LeaseTiming = TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`annotations` are set on the Lease while this replica holds it; followers find the leader by them."""
        self._held = self._led = self._terms = 0
        """The term that the thread holds, the term in which the main thread leads (0: none), and the number of terms."""
        self._over = False
        self.holder = ""
        """The identity of the Lease's last observed holder."""
        self.holder_annotations: dict[str, str] = {}
        self._main_client = self._client = client
        self._identity = identity
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
        self._seen: LeaseObservation | None = None
        self._renewed = 0.0
        self._logged = ""
        self._log = LOG

    @property
    def leading(self) -> bool:
        return self._led != 0

    @property
    def certain(self) -> bool:
        """Returns whether we lead and still hold the Lease for certain, even right after the process was frozen."""
        return self._led != 0 and self._led == self._held and self._clock() - self._renewed < self._timing.duration

    async def run(self) -> None:
        """Runs until cancelled, and then releases the Lease, so that another replica does not have to wait for its expiry."""
        main, for_other_loop, stopping = asyncio.get_running_loop(), asyncio.new_event_loop(), asyncio.Event()
        finished: Future[None] = Future()

        def work() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: for_other_loop) as runner:
                    runner.run(self._elect_until(stopping, main))
            except BaseException as error:
                finished.set_exception(error)
            else:
                finished.set_result(None)

        threading.Thread(target=work, name="lease", daemon=True).start()
        try:
            await asyncio.shield(asyncio.wrap_future(finished))
        finally:
            self._lead_in(0)
            self._over = True
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                for_other_loop.call_soon_threadsafe(stopping.set)
            await asyncio.shield(asyncio.wrap_future(finished))

    async def _elect_until(self, stopping: asyncio.Event, main: asyncio.AbstractEventLoop) -> None:
        async with self._main_client.for_other_loop() as self._client, asyncio.TaskGroup() as tasks:
            electing = tasks.create_task(self._elect(main))
            waiting = tasks.create_task(stopping.wait())
            await asyncio.wait((electing, waiting), return_when=asyncio.FIRST_COMPLETED)
            electing.cancel()
            waiting.cancel()

    async def _elect(self, main: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                await self._follow()
                self._terms += 1
                self._held = self._terms
                main.call_soon_threadsafe(self._lead_in, self._held)
                await self._lead()
                self._held = 0
                main.call_soon_threadsafe(self._lead_in, 0)
        finally:
            if self._held:
                self._held = 0
                await self._release()

    def _lead_in(self, term: int) -> None:
        """Starts or stops leading, on the main thread."""
        if self._over:
            return
        previous, self._led = self._led, term
        if term and not previous:
            self._log.info("leading", identity=self._identity)
            self._leadership.started_leading()
        elif previous and not term:
            self._log.warning("no longer leading", identity=self._identity)
            self._leadership.stopped_leading()

    async def _follow(self) -> None:
        """Returns when this replica has acquired the Lease."""
        while True:
            if await self._attempt():
                return
            await asyncio.sleep(self._timing.look_interval)

    async def _lead(self) -> None:
        """Returns when this replica may no longer hold the Lease."""
        while True:
            await asyncio.sleep(self._timing.renew_interval)
            while not await self._in_time():
                if self._clock() - self._renewed >= self._timing.renew_deadline or self.holder != self._identity:
                    return
                await asyncio.sleep(min(0.5, self._timing.look_interval))

    async def _in_time(self) -> bool:
        """Renews once, within the time for which the Lease is certain."""
        try:
            async with asyncio.timeout(max(0.0, self._renewed + self._timing.renew_deadline - self._clock())):
                return await self._attempt()
        except TimeoutError:
            return False

    async def _attempt(self) -> bool:
        """Reads the Lease, acquires or renews it if possible, and returns whether this replica holds it."""
        started = self._clock()
        try:
            if not self._held or self._lease is None:
                await self._read()
            match decide(self._lease, self._seen, self._identity, self._clock()):
                case LeaseAction.WAIT:
                    return False
                case LeaseAction.CREATE:
                    body = acquired(self._empty, self._identity, micro_now(), self._timing.duration, self._annotations)
                    self._observe(await self._client.create(self._collection, body))
                case _:
                    body = acquired(self._lease or {}, self._identity, micro_now(), self._timing.duration, self._annotations)
                    self._observe(await self._client.put(self._path, body))
        except ApiError as error:
            self._lease = None  # read it again before the next attempt: another replica may hold it
            if str(error) != self._logged and not error.conflict:
                self._logged = str(error)
                self._log.warning("cannot read or renew the Lease", lease=self._path, error=str(error))
            return False
        self._renewed, self._logged = started, ""
        return True

    async def _read(self) -> None:
        try:
            self._observe(await self._client.get(self._path))
        except ApiError as error:
            if not error.not_found:
                raise
            self._lease, self._seen, self.holder = None, None, ""

    def _observe(self, lease: Json) -> None:
        self._lease = lease
        record = record_of(lease)
        if self._seen is None or self._seen.record != record:
            self._seen = LeaseObservation(record, self._clock())
        self.holder = record[0] or ""
        self.holder_annotations = (lease.get("metadata") or {}).get("annotations") or {}

    async def _release(self) -> None:
        lease = self._lease
        if lease is None:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_now()}
        try:
            await self._client.request("PUT", self._path, body={**lease, "spec": spec}, within=2.0)
        except ApiError as error:
            self._log.info("Lease not released; it will expire", error=str(error))
