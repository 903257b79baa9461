"""Conditions as they stand in a status: with the generation they speak of, and with the time of their last change."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.api.meta import Object
from lasthop.api.status import ConditionStatus
from lasthop.plan.condition import Condition
from lasthop.plan.messages import limited


def stated(conditions: Iterable[Condition], obj: Object) -> tuple[ConditionStatus, ...]:
    """Conditions about `obj`, none longer than an API server takes; their time is set when they are merged with what was there
    before."""
    generation = obj.metadata.generation
    return tuple(ConditionStatus(c.type, str(c.status), c.reason, limited(c.message), generation) for c in conditions)


def timed(new: tuple[ConditionStatus, ...], old: tuple[ConditionStatus, ...], now: str) -> tuple[ConditionStatus, ...]:
    """lastTransitionTime moves only with the status."""
    before = {c.type: c for c in old}
    merged = []
    for condition in new:
        previous = before.get(condition.type)
        unchanged = previous is not None and previous.status == condition.status
        time = previous.last_transition_time if previous and unchanged else now
        merged.append(msgspec.structs.replace(condition, last_transition_time=time))
    return tuple(merged)
