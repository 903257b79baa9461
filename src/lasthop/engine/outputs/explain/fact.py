"""Facts of an explanation: a text, its state, and the facts beneath it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.problem import Problem


class FactState(StrEnum):
    PLAIN = ""
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    state: FactState = FactState.PLAIN
    because: tuple[Fact, ...] = ()
    object: Key | None = None
    """The object that the fact describes."""
    place: str = ""
    """`file:line` of the object, if it comes from a file."""
    missing: tuple[Key, ...] = ()
    """The missing objects that the text names."""


def good(text: str, *because: Fact, object: Key | None = None) -> Fact:
    return Fact(text, FactState.GOOD, because, object)


def bad(text: str, *because: Fact, object: Key | None = None, why: Problem | None = None) -> Fact:
    """Returns a fact that reports a problem. `why` ends the text."""
    return _because(Fact(text, FactState.BAD, because, object), why)


def warning(text: str, *because: Fact, object: Key | None = None, why: Problem | None = None) -> Fact:
    return _because(Fact(text, FactState.WARNING, because, object), why)


def _because(fact: Fact, why: Problem | None) -> Fact:
    return msgspec.structs.replace(fact, text=f"{fact.text}{why.text}", missing=why.missing) if why else fact


def plain(text: str, *because: Fact, object: Key | None = None) -> Fact:
    return Fact(text, FactState.PLAIN, because, object)


def worst(facts: Iterable[Fact]) -> FactState:
    """Returns the worst state of several facts. Plain facts do not count."""
    states = {fact.state for fact in facts}
    return next((s for s in (FactState.BAD, FactState.WARNING, FactState.GOOD) if s in states), FactState.PLAIN)


def corrected(fact: Fact) -> Fact:
    """Corrects the state of each fact by those beneath it: a good fact above a bad one becomes a warning."""
    if not fact.because:
        return fact
    because = tuple(map(corrected, fact.because))
    state = FactState.WARNING if fact.state is FactState.GOOD and _holds_bad(because) else fact.state
    return msgspec.structs.replace(fact, because=because, state=state)


def _holds_bad(facts: Iterable[Fact]) -> bool:
    return any(fact.state is FactState.BAD or _holds_bad(fact.because) for fact in facts)
