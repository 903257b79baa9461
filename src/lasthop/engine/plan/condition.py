"""Conditions without their generation and time, which belong to the object that will hold them."""

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
    """What it reports, where it is bad news."""
    unknown: bool = False
    """Neither true nor false, yet."""


@functools.lru_cache(maxsize=1024)
def true(type: Reason, message: str = "", reason: Reason | None = None) -> Condition:
    """Returns a condition that holds; its reason is its own name unless the spec says otherwise."""
    return Condition(type, True, reason or type, message)


def failed(type: Reason, problem: Problem) -> Condition:
    """Returns the condition that reports a problem: False, or True for a type that is bad news when true."""
    return Condition(type, condition_type(type).negative, problem.reason, problem.text, problem)


def unknown(type: Reason, reason: Reason, message: str = "") -> Condition:
    return Condition(type, False, reason, message, unknown=True)
