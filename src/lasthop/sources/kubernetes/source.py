"""Watches every kind that the API server serves, and yields batches of objects.

discovery ──> a reflector for each kind ──> reads ──> Batch        not before every kind has been read once
    each 10 s: kinds come and go                ├───> ObservedStatuses     statuses, for the writer
                                                └───> Pods, in the namespaces where an XBackend selects some
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import structlog
from prometheus_client import Counter

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.backends import XBackend
from lasthop.api.bundle import CrdVersions
from lasthop.api.kinds import KINDS, POD, Kind
from lasthop.api.meta import Key, Object
from lasthop.kubernetes.client import Client, path_of
from lasthop.kubernetes.errors import ApiError
from lasthop.kubernetes.objects import POLICY, DecodedObject
from lasthop.kubernetes.observed import ObservedStatuses
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.knowledge import Proofs, Unknown
from lasthop.sources.kubernetes.bundle import crd_versions
from lasthop.sources.kubernetes.discovery import choose, discover
from lasthop.sources.kubernetes.findings import optional, trouble_findings
from lasthop.sources.kubernetes.reflector import Reflector, Timing
from lasthop.sources.source import Batch

DISCOVERY_INTERVAL: Final = 10.0
"""Seconds between discoveries of kinds that were installed or removed."""
RETRY: Final = 1.0
"""The same while discovery fails."""
SETTLE: Final = 0.005
"""Seconds to wait for further changes before a batch is yielded: a change seldom comes alone."""
ABSENCES: Final = 2
"""How often in a row discovery must miss a known kind: a starting server may not know all its CRDs yet."""


class _WatchedKind:
    """Tracks a served kind, and how much of it has been read."""

    def __init__(self, kind: Kind, version: str, reflectors: list[Reflector]) -> None:
        self.kind, self.version, self.reflectors = kind, version, reflectors
        self.tasks: list[asyncio.Task[None]] = []
        self.unread = set(reflectors)
        self.errors: dict[Reflector, ApiError] = {}
        self.absences = 0

    @property
    def settled(self) -> bool:
        """Whether it has been read completely once, or is optional and we may not read it."""
        forbidden = {r for r, error in self.errors.items() if error.status == 403} if optional(self.kind) else set()
        return self.unread <= forbidden


class KubernetesSource:
    def __init__(
        self,
        client: Client,
        *,
        namespaces: Iterable[str] = (),
        kinds: Iterable[Kind] = KINDS.values(),
        timing: Timing | None = None,
        discovery_interval: float = DISCOVERY_INTERVAL,
        settle: float = SETTLE,
    ) -> None:
        """`namespaces` are the watched ones, for namespaced kinds; empty: all."""
        self.observed = ObservedStatuses()
        self.restarts = Counter("lasthop_watch_restarts", "Watches that were opened again.", ["kind", "reason"], registry=None)
        self._client, self._timing = client, timing or Timing()
        self._namespaces, self._kinds = tuple(namespaces) or ("",), tuple(kinds)
        self._interval, self._settle = discovery_interval, settle
        self._log: Any = structlog.get_logger()
        self._watched: dict[str, _WatchedKind] = {}
        self._absent: set[str] = set()
        self._discovered = False
        self._discovery_error: ApiError | None = None
        self._crd_versions: CrdVersions = ()
        self._selecting: set[Key] = set()
        """XBackends whose endpoints are Pods."""
        self._tasks: asyncio.TaskGroup | None = None
        self._changes: dict[Key, Object | None] = {}
        self._problems: dict[Key, Finding] = {}
        self._opaque: set[Key] = set()
        self._news, self._look = asyncio.Event(), asyncio.Event()
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
        about = trouble_findings(troubles, self._discovery_error, self.started, self._client.access.name)
        return (*about, *(self._problems[key] for key in sorted(self._problems)))

    @property
    def complete(self) -> bool:
        """Whether every served kind has been read once. Only then does "no such policy" mean anything."""
        return self._discovered and all(watched.settled for watched in self._watched.values())

    def unknown(self) -> tuple[Unknown, ...]:
        watched = self._watched.get(POLICY)
        why = [str(key) for key in sorted(self._opaque)]
        if watched is not None and not watched.settled:
            why.append("BackendTLSPolicies have not been listed")
        return tuple(Unknown(provable=False, namespace="", why=each) for each in why)

    def prove(self, ports: Proofs) -> None:
        """Takes the ports that wait for a proof."""

    # --- batches -----------------------------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[Batch]:
        published: tuple[object, ...] = ()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._follow_discovery(tasks))
            while True:
                await self._news.wait()
                await asyncio.sleep(self._settle)
                self._news.clear()
                findings = self.findings()
                about = (findings, self.unknown(), self._crd_versions, frozenset(self._absent))
                if not self.started:
                    self._log_findings(findings)
                    if not self.complete:
                        continue
                elif not self._changes and about == published:
                    continue
                changes, self._changes = self._changes, {}
                self.started, published = True, about
                yield Batch(changes, *about)

    def _log_findings(self, findings: tuple[Finding, ...]) -> None:
        """Logs findings before the first batch, when nothing else reports why there is none."""
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
                served = await discover(self._client, self._kinds)
                versions = choose(self._kinds, served)
                installed = [kind for kind in self._kinds if kind.kind in versions]
                self._crd_versions = await crd_versions(self._client, installed, self._crd_versions)
                self._discovery_error, self._discovered, failures = None, True, 0
                self._adopt(versions, tasks)
            except ApiError as error:
                failures += 1
                if failures > 1 or not (self.started and error.transient):  # a single failure is not reported
                    self._discovery_error = error
            self._news.set()
            pause = min(RETRY, self._interval) if failures else self._interval
            try:
                async with asyncio.timeout(pause):
                    await self._look.wait()
                    await self._timing.sleep(min(0.5, self._interval))
            except TimeoutError:
                pass

    def _adopt(self, versions: dict[str, str], tasks: asyncio.TaskGroup) -> None:
        for kind in self._kinds:
            version, watched = versions.get(kind.kind), self._watched.get(kind.kind)
            if version is not None and (watched is None or watched.version != version):
                self._start(kind, version, tasks)
            elif version is None and watched is not None:
                watched.absences += 1
                if watched.absences >= ABSENCES:
                    self._end(watched)
            elif watched is not None:
                watched.absences = 0
            elif kind.kind not in self._absent:
                self._absent.add(kind.kind)
                self._log.info("kind is not installed; checking for it from time to time", kind=kind.kind, group=kind.group)

    def _start(self, kind: Kind, version: str, tasks: asyncio.TaskGroup) -> None:
        before = self._watched.get(kind.kind)
        namespaces = self._namespaces if kind.namespaced else ("",)
        reflectors = []
        for number, namespace in enumerate(namespaces):
            reflector = self._reflector(kind, version, namespace)
            if before is not None:  # another version of the same objects: what is known decides what is gone
                reflector.known = dict.fromkeys(before.reflectors[number].known, "")
            reflectors.append(reflector)
        watched = _WatchedKind(kind, version, reflectors)
        if before is not None:
            self._stop(before)
            watched.unread = {new for new, old in zip(reflectors, before.reflectors, strict=True) if old in before.unread}
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
        """Removes a kind that is gone for certain, and its objects with it."""
        self._stop(watched)
        del self._watched[watched.kind.kind]
        self.observed.versions.pop(watched.kind.kind, None)
        self.read(watched.kind, [], [key for reflector in watched.reflectors for key in reflector.known])
        self._absent.add(watched.kind.kind)
        self._log.warning("kind is no longer installed", kind=watched.kind.kind, group=watched.kind.group)

    def _stop(self, watched: _WatchedKind) -> None:
        for task in watched.tasks:
            task.cancel()

    # --- what the reflectors say -------------------------------------------------------------------------------------

    def read(self, kind: Kind, reads: list[DecodedObject], deleted: list[Key]) -> None:
        for key in deleted:
            self._changes[key] = None
            self._problems.pop(key, None)
            self._opaque.discard(key)
            self.observed.forget(key)
        for read in reads:
            self._changes[read.key] = read.object
            if read.problem is not None:
                self._problems[read.key] = read.problem
            else:
                self._problems.pop(read.key, None)
            (self._opaque.add if read.opaque else self._opaque.discard)(read.key)
            if read.status is not None:
                self.observed.observe(read.key, read.status)
        self._news.set()
        if kind.kind == XBACKEND:
            self._select({read.key: read.object for read in reads}, deleted)

    def _select(self, reads: Mapping[Key, Object | None], deleted: Iterable[Key]) -> None:
        """Follows the Pods of the namespaces where XBackends select some. At the start they count as unread before XBackends
        count as read, so that the first batch has both."""
        self._selecting -= {*reads, *deleted}
        self._selecting |= {key for key, obj in reads.items() if isinstance(obj, XBackend) and obj.selects}
        wanted, watched = {key.namespace for key in self._selecting}, self._watched.get(POD.kind)
        known = {self._pod_namespace(each): each for each in watched.reflectors} if watched else {}
        if wanted == known.keys() or self._tasks is None:
            return
        if watched is None:
            watched = self._watched[POD.kind] = _WatchedKind(POD, POD.versions[0], [])
        for namespace in sorted(known.keys() - wanted):
            self._unselect(watched, known[namespace])
        for namespace in sorted(wanted - known.keys()):
            reflector = self._reflector(POD, POD.versions[0], namespace)
            watched.reflectors.append(reflector)
            watched.unread.add(reflector)
            watched.tasks.append(self._tasks.create_task(reflector.run()))
        self._log.info("watching", kind=POD.kind, version=watched.version, namespaces=sorted(wanted))
        if not wanted:
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
