"""Conditions without `observedGeneration` and `lastTransitionTime`, which the status of the object adds."""

from __future__ import annotations

import functools

import msgspec

from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import Reason, condition_type


class Condition(msgspec.Struct, frozen=True):
    type: Reason
    status: bool
    reason: Reason
    message: str = ""
    problem: Problem | None = None
    """The problem that the condition reports, if it reports one."""
    unknown: bool = False
    """The status is Unknown."""


@functools.lru_cache(maxsize=1024)
def true(type: Reason, message: str = "", reason: Reason | None = None) -> Condition:
    """Returns a condition with status True. Its reason is its own name unless the spec names another."""
    return Condition(type, True, reason or type, message)


def failed(type: Reason, problem: Problem) -> Condition:
    """Returns the condition that reports a problem: True for types with negative polarity, otherwise False."""
    return Condition(type, condition_type(type).negative, problem.reason, problem.text, problem)


def unknown(type: Reason, reason: Reason, message: str = "") -> Condition:
    return Condition(type, False, reason, message, unknown=True)
