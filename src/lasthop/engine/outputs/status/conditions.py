"""Conditions of a status, with generation and lastTransitionTime."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from msgspec.structs import replace

from lasthop.base.api.meta import Object
from lasthop.base.api.status import ConditionStatus
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.messages import limited


def stated(conditions: Iterable[Condition], obj: Object) -> tuple[ConditionStatus, ...]:
    """Converts conditions for the status of `obj`, within the API server's length limit. The merge with the old status sets
    their time."""
    generation = obj.metadata.generation
    return tuple(
        ConditionStatus(c.type, _status(c), c.reason, limited(c.message), generation)
        if c.message
        else _silent(c.type, _status(c), c.reason, generation)
        for c in conditions
    )


@functools.lru_cache(maxsize=1024)
def _silent(type: str, status: str, reason: str, generation: int) -> ConditionStatus:
    """Returns a condition without a message. The cache shares it among the many valid objects."""
    return ConditionStatus(type, status, reason, "", generation)


def _status(condition: Condition) -> str:
    return "Unknown" if condition.unknown else str(condition.status)


def transition_time(status: str | None, since: str | None, new: str, now: str) -> str:
    """Returns the lastTransitionTime of a condition, which changes only with its status."""
    return since if since and status == new else now


def timed(new: tuple[ConditionStatus, ...], old: tuple[ConditionStatus, ...], now: str) -> tuple[ConditionStatus, ...]:
    before = {c.type: c for c in old}

    def since(c: ConditionStatus) -> str:
        was = before.get(c.type)
        return transition_time(was.status, was.last_transition_time, c.status, now) if was else now

    return tuple(replace(c, last_transition_time=since(c)) for c in new)
