"""Writes statuses and Events to the cluster, only while this replica holds the Lease.

statuses ──> StatusWriter ──> changes of the written statuses ──> Events
findings ────────────────────────────────────────────────────────────^
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.status import Status
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.lease import LeaderElector, Leadership
from lasthop.edge.kubernetes.observed import ObservedStatuses
from lasthop.edge.sinks.kubernetes.events import EventRecorder
from lasthop.edge.sinks.kubernetes.merge import observations, without_observations
from lasthop.edge.sinks.kubernetes.writer import StatusWriter, WriteGuard
from lasthop.edge.sinks.sink import Sink
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, FindingChanges
from lasthop.engine.plan.reasons import CONDITION_TYPES

EVENTS: Final = frozenset(type for type, definition in CONDITION_TYPES.items() if definition.event)
"""Condition types with an Event when they become true, and when they stop being true."""
WEAKENED: Final = frozenset(type for type in EVENTS if CONDITION_TYPES[type].weakened or CONDITION_TYPES[type].negative)
"""Condition types that report a weakness when true. They have an Event for each Gateway."""


class Transition(NamedTuple):
    reason: str
    note: str
    warning: bool = False


class ProgrammedCondition(NamedTuple):
    status: str
    reason: str


def programmed(status: Json) -> ProgrammedCondition:
    condition: Json = next((c for c in status.get("conditions") or () if c.get("type") == "Programmed"), {})
    return ProgrammedCondition(condition.get("status", ""), condition.get("reason", ""))


def transitions(before: Json, after: Json) -> list[Transition]:
    old, new = dict(_conditions(before)), dict(_conditions(after))
    result: list[Transition] = []
    for (place, type), condition in new.items():
        previous, current = old.get((place, type), {}).get("status"), condition["status"]
        if previous != current and "True" in (previous, current):
            result.append(_transition(place, type, condition))
    gone = ((place, type) for (place, type), c in old.items() if c["status"] == "True" and (place, type) not in new)
    return result + [Transition(f"{type}Over", f"{place}no longer the case") for place, type in gone if type in WEAKENED]


def _transition(place: str, type: str, condition: Json) -> Transition:
    holds, note = condition["status"] == "True", f"{place}{condition.get('message') or type}"
    if type in WEAKENED:
        return Transition(type if holds else f"{type}Over", note, warning=holds)
    return (
        Transition(type, note)
        if holds
        else Transition(f"Not{type}", f"{place}{condition.get('reason')}: {note}", warning=True)
    )


def _conditions(status: Json) -> Iterator[tuple[tuple[str, str], Json]]:
    yield from _of_types(status, EVENTS, "")
    for ancestor in status.get("ancestors") or ():
        if ancestor.get("controllerName") == CONTROLLER_NAME:
            ref = ancestor.get("ancestorRef") or {}
            yield from _of_types(ancestor, WEAKENED, f"at {ref.get('kind', 'Gateway')} {ref.get('name')}: ")


def _of_types(entry: Json, types: Container[str], place: str) -> Iterator[tuple[tuple[str, str], Json]]:
    conditions = ((condition.get("type", ""), condition) for condition in entry.get("conditions") or ())
    return (((place, type), condition) for type, condition in conditions if type in types)


LEASE: Final = "lasthop"
"""The name of the Lease, which RBAC refers to."""
SETTLING: Final = 15.0
"""Seconds after the start of leading in which proxies connect and replicas report theirs. Until then "no proxy" may only mean
"none reported yet"."""
PATIENCE: Final = 3.0
"""Seconds that a finding must last to become an Event, because related objects seldom arrive at once."""
WITHOUT_PROXY_REPORT: Final = frozenset((reasons.PENDING, reasons.ADDRESS_NOT_ASSIGNED, reasons.PARENT_NOT_PROGRAMMED))
"""Reasons of a Gateway or ListenerSet without a report of its proxies."""


class StatusUpdater(Sink, Leadership, WriteGuard):
    def __init__(
        self,
        client: Client,
        observed: ObservedStatuses,
        *,
        identity: str,
        namespace: str,
        uid_of: Callable[[Key], str],
        annotations: Mapping[str, str] | None = None,
        leadership: Leadership | None = None,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`uid_of` returns the UID of an existing object, else an empty text. `leadership` is called after this object."""
        self.elector = LeaderElector(client, namespace, LEASE, identity, self, annotations=annotations)
        self.writer = StatusWriter(client, observed, guard=self)
        self.events = EventRecorder(client, identity, may_write=self.may_write)
        self._uid_of, self._leadership, self._clock = uid_of, leadership or Leadership(), clock
        self._since, self._patience = 0.0, patience
        self._recent: dict[Finding, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self.elector.run, self.writer.run, self.events.run):
                    tasks.create_task(work())
        finally:
            for timer in self._recent.values():
                timer.cancel()

    def status_changed(self, changes: Mapping[Key, Status | None]) -> None:
        self.writer.want(changes)

    def findings_changed(self, changes: FindingChanges) -> None:
        """Records Events for new and resolved findings. Findings at the start are in the statuses, short-lived ones are
        skipped, and findings with a condition have that condition's Event."""
        new, gone = (
            [finding for finding in findings if finding.reason not in WEAKENED] for findings in (changes.new, changes.gone)
        )
        for finding in new:
            self._recent[finding] = asyncio.get_running_loop().call_later(self._patience, self._lasts, finding)
        for finding in gone:
            if timer := self._recent.pop(finding, None):
                timer.cancel()
            else:
                self._emit(finding.object, "Resolved", f"no longer: {finding.message}")

    def _lasts(self, finding: Finding) -> None:
        del self._recent[finding]
        self._emit(finding.object, finding.reason, _note(finding), warning=True)

    def _emit(self, key: Key | None, reason: str, note: str, *, warning: bool = False) -> None:
        if key is not None and key.kind in KINDS and self.may_write() and (uid := self._uid_of(key)):
            self.events.emit(key, uid, reason, note, warning=warning)

    def may_write(self) -> bool:
        return self.elector.certain

    def started_leading(self) -> None:
        self._since = self._clock()
        self.writer.lead(True)
        self._leadership.started_leading()

    def stopped_leading(self) -> None:
        self.writer.lead(False)
        self._leadership.stopped_leading()

    def premature(self, key: Key, before: dict[str, Any], after: dict[str, Any]) -> bool:
        """Delays two changes while this replica has only just started to lead: a Gateway or ListenerSet is no longer
        programmed, and observations of a backend are gone."""
        if self._clock() - self._since >= SETTLING:
            return False
        if key.kind not in ("Gateway", "ListenerSet"):
            return _only_observations_lost(before, after)
        now = programmed(after)
        return programmed(before).status == "True" and now.status != "True" and now.reason in WITHOUT_PROXY_REPORT

    def written(self, key: Key, before: dict[str, Any], after: dict[str, Any]) -> None:
        for reason, note, warning in transitions(before, after):
            self._emit(key, reason, note, warning=warning)


def _only_observations_lost(before: Json, after: Json) -> bool:
    """Returns whether the only change is that observations became unknown. Routes have such a condition only during
    failures."""
    observed = [condition for condition, status in observations(before).items() if status != "Unknown"]
    if not observed:
        return False
    remaining = observations(after)
    lost = any(remaining.get(condition, "Unknown") == "Unknown" for condition in observed)
    return lost and without_observations(before) == without_observations(after)


def _note(finding: Finding) -> str:
    where = f"{finding.field}: " if finding.field else ""
    return f"{where}{finding.message}{' ' + finding.remedy if finding.remedy else ''}"
