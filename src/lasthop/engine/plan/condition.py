"""Conditions without their generation and time, which belong to the object that will hold them."""

from __future__ import annotations

import functools

import msgspec

from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import condition_type


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: bool
    reason: str
    message: str = ""
    problem: Problem | None = None
    """What it reports, where it is bad news."""
    unknown: bool = False
    """Neither true nor false, yet."""


@functools.lru_cache(maxsize=1024)
def true(type: str, message: str = "", reason: str = "") -> Condition:
    """Returns a condition that holds; its reason is its own name unless the spec says otherwise."""
    return Condition(type, True, reason or type, message)


def failed(type: str, problem: Problem) -> Condition:
    """Returns the condition that reports a problem: False, or True for a type that is bad news when true."""
    return Condition(type, condition_type(type).negative, problem.reason, problem.text, problem)


def unknown(type: str, reason: str, message: str = "") -> Condition:
    """Returns a condition of which nothing is known yet."""
    return Condition(type, False, reason, message, unknown=True)
