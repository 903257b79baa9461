"""Derives Events from a written status: the difference between the previous status and the new one.

The previous status is the cluster's, not a remembered one, so a restart causes no Events.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.engine.plan.reasons import CONDITION_TYPES

EVENTS: Final = frozenset(type for type, known in CONDITION_TYPES.items() if known.event)
"""Condition types with an Event when they become true, and when they no longer are."""
WEAKENED: Final = frozenset(type for type in EVENTS if CONDITION_TYPES[type].weakened or CONDITION_TYPES[type].negative)
"""The types that report a weakness when true, with an Event for each Gateway."""


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
        was, now = old.get((place, type), {}).get("status"), condition["status"]
        if was != now and "True" in (was, now):
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
