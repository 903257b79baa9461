"""Watches the served kinds that Lasthop reads, and yields batches of objects.

discovery ──> a reflector for each kind ──> reads ──> Batch        not before every kind has been read once
    each 10 s: kinds come and go                ├───> ObservedStatuses     statuses, for the writer
                                                ├───> Pods, in the namespaces where an XBackend selects some
                                                └───> Prover ──> Batch     ports that no policy names

The first batch proves absence for all of its ports, because its policies are complete as of a request that was sent after
everything else in the batch was read. From the second batch on, policies are unknown, and each port is proven separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from prometheus_client import Counter

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.bundle import CrdVersion, CrdVersions
from lasthop.base.api.kinds import GATEWAY_API, KINDS, POD, Kind
from lasthop.base.api.meta import Key, Object
from lasthop.base.text.logs import LOG
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.objects import POLICY, DecodedObject
from lasthop.edge.kubernetes.observed import ObservedStatuses
from lasthop.edge.slices import wait_for
from lasthop.edge.sources.kubernetes.discovery import NO_CRD, Crd, Served, choose, crd_versions, discover, find_crd
from lasthop.edge.sources.kubernetes.findings import (
    install,
    not_served,
    optional,
    remedy,
    resource_name,
    trouble_findings,
    unproven,
    unreadable_targets,
)
from lasthop.edge.sources.kubernetes.proofs import Prover, Reading
from lasthop.edge.sources.kubernetes.reflector import Reflector, WatchTiming
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.knowledge import Proofs, Unknown

DISCOVERY_INTERVAL: Final = 10.0
"""Seconds between discoveries of kinds that were installed or removed."""
RETRY: Final = 1.0
"""The interval while discovery fails."""
SETTLE: Final = 0.005
"""Minimum seconds between two batches. Changes that follow one another share a batch; a single change is yielded at once."""
ABSENT_AFTER: Final = 3.0
"""Seconds between the two discoveries that must miss a kind before it counts as absent. A starting server may not know all its
CRDs yet, and a CRD may be deleted only to be replaced."""


MOST_AUTHORS: Final = 5000
"""Objects with a known author."""
UNREAD: Final = object()


class _Missing(NamedTuple):
    """Describes a kind that is not served in a supported version."""

    since: float
    """The time at which this state was first observed."""
    lasts: bool
    """A discovery some seconds later has confirmed it."""
    crd: Crd


class _WatchedKind:
    """Tracks the reading of one served kind."""

    def __init__(self, kind: Kind, version: str, reflectors: list[Reflector]) -> None:
        self.kind, self.version, self.reflectors = kind, version, reflectors
        self.tasks: list[asyncio.Task[None]] = []
        self.unread = set(reflectors)
        self.errors: dict[Reflector, ApiError] = {}

    @property
    def settled(self) -> bool:
        """Returns whether it has been read completely once, or is optional and may not be read."""
        forbidden = {r for r, error in self.errors.items() if error.status == 403} if optional(self.kind) else set()
        return self.unread <= forbidden

    def add(self, reflector: Reflector, task: asyncio.Task[None]) -> None:
        self.reflectors.append(reflector)
        self.unread.add(reflector)
        self.tasks.append(task)

    def continue_from(self, previous: _WatchedKind) -> None:
        """Continues with another version of the same objects, so that the known objects decide which were deleted."""
        pairs = list(zip(self.reflectors, previous.reflectors, strict=True))
        self.unread = {new for new, old in pairs if old in previous.unread}
        for new, old in pairs:
            new.known = dict.fromkeys(old.known, "")


class KubernetesSource:
    def __init__(
        self,
        client: Client,
        *,
        namespaces: Iterable[str] = (),
        timing: WatchTiming | None = None,
        discovery_interval: float = DISCOVERY_INTERVAL,
        settle: float = SETTLE,
    ) -> None:
        """`namespaces` are the watched namespaces of namespaced kinds; empty for all."""
        self.observed = ObservedStatuses()
        self.restarts = Counter("lasthop_watch_restarts", "Watches that were opened again.", ["kind", "reason"], registry=None)
        self._client, self._timing = client, timing or WatchTiming()
        self._namespaces, self._kinds = tuple(namespaces) or ("",), tuple(KINDS.values())
        self._interval, self._settle = discovery_interval, settle
        self._log = LOG
        self._watched: dict[str, _WatchedKind] = {}
        self._missing: dict[str, _Missing] = {}
        self._absent: set[str] = set()
        """Missing kinds that certainly have no objects."""
        self._discovered = False
        self._discovery_error: ApiError | None = None
        self._crd_versions: CrdVersions = ()
        self._selecting: set[Key] = set()
        """XBackends whose endpoints are Pods."""
        self._tasks: asyncio.TaskGroup | None = None
        self._changes: dict[Key, Object | None] = {}
        self._problems: dict[Key, Finding] = {}
        self._opaque: set[Key] = set()
        self._authors: dict[Key, str] = {}
        """The latest authors of objects that were read since the first batch."""
        self._news, self._look = asyncio.Event(), asyncio.Event()
        self._prover = Prover(client, self._reading, self._news.set, self._timing)
        self._logged: tuple[Finding, ...] = ()
        self.started = False
        """The first batch was yielded."""

    # --- state ------------------------------------------------------------------------------------------------------

    def findings(self) -> tuple[Finding, ...]:
        troubles = [
            (watched.kind, error, reflector not in watched.unread)
            for watched in self._watched.values()
            for reflector, error in watched.errors.items()
        ]
        read_findings = trouble_findings(troubles, self._discovery_error, self.started, self._client.access.name)
        gaps = [not_served(kind, why, read=kind.kind in self._watched) for kind, why in self._unread()]
        error = self._prover.error
        proofs = [unproven(error, self._client.access.name, started=self.started)] if error else []
        return (*read_findings, *gaps, *proofs, *(self._problems[key] for key in sorted(self._problems)))

    @property
    def complete(self) -> bool:
        """Returns whether every kind has been read once or is certainly absent. Only then does a missing object count as
        missing."""
        decided = self._absent | self._watched.keys()
        return (
            self._discovered
            and all(kind.kind in decided for kind in self._kinds)
            and all(watched.settled for watched in self._watched.values())
        )

    def unknown(self) -> tuple[Unknown, ...]:
        """Returns the reasons why a missing policy may exist. There is always one, because each kind has its own watch. The
        text contains the error that prevents proofs, if any."""
        kind, error, missing = KINDS[POLICY], self._prover.error, self._missing.get(POLICY)
        why, then = "BackendTLSPolicies have not been listed since the port appeared", ""
        if missing is not None and missing.crd.unread:
            why, then = f"BackendTLSPolicies cannot be read: {missing.crd.unread}", install(kind)
        elif error is not None:
            why, then = f"BackendTLSPolicies cannot be listed: {error}", remedy(error, kind, self._client.access.name)
        return (Unknown(provable=True, namespace="", why=why, remedy=then), *self._unreadable_targets())

    def _unreadable_targets(self) -> tuple[Unknown, ...]:
        return tuple(map(unreadable_targets, sorted(self._opaque)))

    def prove(self, ports: Proofs) -> None:
        """Replaces the ports that wait for a proof."""
        self._prover.ask(ports)

    def _reading(self) -> Reading | None:
        if (watched := self._watched.get(POLICY)) is not None:
            return watched.version, dict(zip(self._namespaces, watched.reflectors, strict=True))
        if POLICY in self._absent:
            return None
        missing = self._missing.get(POLICY)
        raise ApiError(0, reasons.NOT_SERVED, missing.crd.unread if missing else "discovery has not succeeded yet")

    def _unread(self) -> Iterator[tuple[Kind, str]]:
        """Yields the kinds that may have unreadable objects, with reasons, without short-lived states such as an
        installation."""
        for kind in self._kinds:
            missing = self._missing.get(kind.kind)
            if missing is not None and missing.lasts and missing.crd.unread:
                yield kind, missing.crd.unread

    # --- batches -----------------------------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[Batch]:
        published: Batch | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._follow_discovery(tasks))
            yield await self._first_batch()
            self.started = True
            tasks.create_task(self._prover.run())
            self._news.set()
            last_batch_at = -self._settle
            while True:
                await self._news.wait()
                await self._timing.sleep(max(0.0, last_batch_at + self._settle - self._timing.clock()))
                self._news.clear()
                last_batch_at = self._timing.clock()
                batch = self._batch({}, self.unknown())
                proven = self._prover.take()
                if not self._changes and not proven and batch == published:
                    continue
                changes, self._changes, published = self._changes, {}, batch
                yield msgspec.structs.replace(batch, changes=changes, proven=proven)

    async def _first_batch(self) -> Batch:
        """Waits until every kind has been read, then until the policies are complete as of a later moment. Other changes
        after that moment belong to the next batch, so that a client that keeps writing cannot delay the start."""
        while True:
            await self._news.wait()
            await self._timing.sleep(self._settle)
            self._news.clear()
            self._log_findings(self.findings())
            if not self.complete:
                continue
            known_changes = dict(self._changes)
            try:
                await asyncio.gather(*(self._prover.check(scope) for scope in self._namespaces))
            except ApiError as error:
                await self._timing.sleep(self._prover.report(error))
                self._news.set()
                continue
            self._prover.report()
            changes, self._changes = self._changes, {}
            policies = {key: obj for key, obj in changes.items() if key.kind == POLICY}
            later = changes.keys() - policies.keys()
            self._changes = {key: changes[key] for key in later if changes[key] is not known_changes.get(key, UNREAD)}
            return self._batch({**known_changes, **policies}, self._unreadable_targets())

    def _batch(self, changes: Mapping[Key, Object | None], unknown: tuple[Unknown, ...]) -> Batch:
        gaps = ((resource_name(kind), CrdVersion(unread=why)) for kind, why in self._unread() if kind.group == GATEWAY_API)
        versions = tuple(sorted((*self._crd_versions, *gaps)))
        return Batch(changes, self.findings(), unknown, versions, frozenset(self._absent))

    def _log_findings(self, findings: tuple[Finding, ...]) -> None:
        """Logs findings before the first batch, when nothing else explains the delay."""
        for finding in findings:
            if finding not in self._logged:
                log = self._log.error if finding.severity is Severity.ERROR else self._log.warning
                log(str(finding), reason=finding.reason)
        self._logged = findings

    # --- kinds come and go -------------------------------------------------------------------------------------------

    async def _follow_discovery(self, tasks: asyncio.TaskGroup) -> None:
        failures = 0
        while True:
            self._look.clear()
            try:
                await self._discover(tasks)
                failures = 0
            except ApiError as error:
                failures += 1
                if failures > 1 or not (self.started and error.transient):  # a single failure is not reported
                    self._discovery_error = error
            self._news.set()
            undecided = any(not missing.lasts for kind, missing in self._missing.items() if kind not in self._absent)
            await self._pause(min(RETRY, self._interval) if failures or undecided else self._interval)

    async def _discover(self, tasks: asyncio.TaskGroup) -> None:
        served = await discover(self._client, self._kinds)
        versions = choose(self._kinds, served)
        missing = await self._find_crds([kind for kind in self._kinds if kind.kind not in versions], served)
        installed = [kind for kind in self._kinds if kind.kind in versions]
        self._crd_versions = await crd_versions(self._client, installed, self._crd_versions)
        self._discovery_error, self._discovered = None, True
        self._adopt(versions, missing, tasks)

    async def _find_crds(self, kinds: list[Kind], served: Served) -> dict[str, Crd]:
        """Looks for the CRDs of missing kinds. For an optional kind that was never present, discovery alone proves absence."""
        required = [kind for kind in kinds if kind.kind in self._watched or not optional(kind)]
        crds = await asyncio.gather(*(find_crd(self._client, kind, served) for kind in required))
        return {kind.kind: NO_CRD for kind in kinds} | {kind.kind: crd for kind, crd in zip(required, crds, strict=True)}

    async def _pause(self, seconds: float) -> None:
        """Waits for the next discovery. It comes earlier after a watch's 404, and when the CRD of the missing policies
        changes, because without that kind ports are plaintext meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while POLICY in self._missing:
                    if await wait_for(self._look, min(RETRY, self._interval)):
                        return
                    if (await find_crd(self._client, KINDS[POLICY])).version != self._missing[POLICY].crd.version:
                        return
                await self._look.wait()
                await self._timing.sleep(min(0.5, self._interval))

    def _adopt(self, versions: dict[str, str], missing: dict[str, Crd], tasks: asyncio.TaskGroup) -> None:
        for kind in self._kinds:
            version, watched = versions.get(kind.kind), self._watched.get(kind.kind)
            if version is None:
                self._miss(kind, missing[kind.kind])
                continue
            self._missing.pop(kind.kind, None)
            if watched is None or watched.version != version:
                self._start(kind, version, tasks)

    def _miss(self, kind: Kind, crd: Crd) -> None:
        """Decides whether a kind that discovery does not list is absent. Known objects are kept until its absence is certain,
        and nothing starts before policies are read or certainly absent."""
        previous, now = self._missing.get(kind.kind), self._timing.clock()
        since = previous.since if previous and bool(previous.crd.unread) == bool(crd.unread) else now
        lasts = now - since >= min(ABSENT_AFTER, self._interval)
        self._missing[kind.kind] = _Missing(since, lasts, crd)
        watched = self._watched.get(kind.kind)
        must_be_certain = watched is not None or kind.kind == POLICY
        absent = (lasts and not crd.unread) if must_be_certain else (lasts or optional(kind))
        if absent and kind.kind not in self._absent:
            self._set_absent(kind, watched)
        elif crd.unread and kind.kind == POLICY:
            self._absent.discard(kind.kind)

    def _set_absent(self, kind: Kind, watched: _WatchedKind | None) -> None:
        self._absent.add(kind.kind)
        if watched is not None:
            self._end(watched)
        else:
            self._log.info("kind is not installed; checking for it from time to time", kind=kind.kind, group=kind.group)

    def _start(self, kind: Kind, version: str, tasks: asyncio.TaskGroup) -> None:
        previous = self._watched.get(kind.kind)
        namespaces = self._namespaces if kind.namespaced else ("",)
        reflectors = [self._reflector(kind, version, namespace) for namespace in namespaces]
        watched = _WatchedKind(kind, version, reflectors)
        if previous is not None:
            self._stop(previous)
            watched.continue_from(previous)
        self._absent.discard(kind.kind)
        self._watched[kind.kind] = watched
        self.observed.versions[kind.kind] = version
        watched.tasks = [tasks.create_task(reflector.run()) for reflector in reflectors]
        self._log.info("watching", kind=kind.kind, version=version, namespaces=[n for n in namespaces if n] or "all")

    def _reflector(self, kind: Kind, version: str, namespace: str) -> Reflector:
        path = path_of(kind.group, version, kind.plural, namespace)
        return Reflector(kind, self._client, path, self, self._timing, ended=functools.partial(self._count, kind))

    def _count(self, kind: Kind, reason: str) -> None:
        self.restarts.labels(kind.kind, reason).inc()

    def _end(self, watched: _WatchedKind) -> None:
        """Removes a kind that is certainly gone, and its objects."""
        self._stop(watched)
        del self._watched[watched.kind.kind]
        self.observed.versions.pop(watched.kind.kind, None)
        self.read(watched.kind, [], [key for reflector in watched.reflectors for key in reflector.known])
        self._log.warning("kind is no longer installed", kind=watched.kind.kind, group=watched.kind.group)

    def _stop(self, watched: _WatchedKind) -> None:
        for task in watched.tasks:
            task.cancel()

    # --- reflectors' results -------------------------------------------------------------------------------------

    def read(self, kind: Kind, reads: list[DecodedObject], deleted: list[Key]) -> None:
        for key in deleted:
            self._changes[key] = None
            self._problems.pop(key, None)
            self._opaque.discard(key)
            self._authors.pop(key, None)
            self.observed.forget(key)
        for read in reads:
            self._changes[read.key] = read.object
            if self.started and read.author:
                self._attribute(read.key, read.author)
            if read.problem is not None:
                self._problems[read.key] = read.problem
            else:
                self._problems.pop(read.key, None)
            (self._opaque.add if read.opaque else self._opaque.discard)(read.key)
            if read.status is not None:
                self.observed.observe(read.key, read.status)
        self._news.set()
        self._prover.heard.set()
        if kind.kind == XBACKEND:
            self._select({read.key: read.object for read in reads}, deleted)

    def _attribute(self, key: Key, author: str) -> None:
        self._authors.pop(key, None)
        self._authors[key] = author
        if len(self._authors) > MOST_AUTHORS:
            del self._authors[next(iter(self._authors))]

    def author(self, key: Key) -> str:
        """Returns the last manager of an object; empty if it was deleted, or not written since the start."""
        return self._authors.get(key, "")

    def _select(self, reads: Mapping[Key, Object | None], deleted: Iterable[Key]) -> None:
        """Watches the Pods of the namespaces in which XBackends select Pods. At the start these Pods count as unread before
        XBackends count as read, so that the first batch has both."""
        self._selecting -= {*reads, *deleted}
        self._selecting |= {key for key, obj in reads.items() if isinstance(obj, XBackend) and obj.selects}
        namespaces, watched = {key.namespace for key in self._selecting}, self._watched.get(POD.kind)
        by_namespace = {self._pod_namespace(reflector): reflector for reflector in watched.reflectors} if watched else {}
        if namespaces == by_namespace.keys() or self._tasks is None:
            return
        if watched is None:
            watched = self._watched[POD.kind] = _WatchedKind(POD, POD.versions[0], [])
        for namespace in sorted(by_namespace.keys() - namespaces):
            self._unselect(watched, by_namespace[namespace])
        for namespace in sorted(namespaces - by_namespace.keys()):
            reflector = self._reflector(POD, POD.versions[0], namespace)
            watched.add(reflector, self._tasks.create_task(reflector.run()))
        self._log.info("watching", kind=POD.kind, version=watched.version, namespaces=sorted(namespaces))
        if not namespaces:
            del self._watched[POD.kind]

    def _unselect(self, watched: _WatchedKind, reflector: Reflector) -> None:
        number = watched.reflectors.index(reflector)
        del watched.reflectors[number]
        watched.tasks.pop(number).cancel()
        watched.unread.discard(reflector)
        watched.errors.pop(reflector, None)
        self.read(POD, [], list(reflector.known))

    def _pod_namespace(self, reflector: Reflector) -> str:
        return reflector.path.split("/")[-2]

    def whole(self, reflector: Reflector) -> None:
        watched = self._watched.get(reflector.kind.kind)
        self._prover.heard.set()
        if watched is not None and reflector in watched.unread:
            watched.unread.discard(reflector)
            self._news.set()

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        watched = self._watched.get(reflector.kind.kind)
        if watched is None or reflector not in watched.reflectors:
            return
        if error is None:
            if watched.errors.pop(reflector, None) is not None:
                self._news.set()
            return
        watched.errors[reflector] = error
        self._news.set()
        if error.not_found:
            self._look.set()
