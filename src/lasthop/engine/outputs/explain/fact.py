"""An explanation: a sentence, whether it is good news, and what it rests on."""

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
    """The object it is about, where a reader may want to look."""
    place: str = ""
    """`file:line` of that object, where it comes from a file."""
    missing: tuple[Key, ...] = ()
    """The objects that it calls missing."""


def good(text: str, *because: Fact, object: Key | None = None) -> Fact:
    return Fact(text, FactState.GOOD, because, object)


def bad(text: str, *because: Fact, object: Key | None = None, why: Problem | None = None) -> Fact:
    """Returns a line that says what is wrong. `why` ends the sentence."""
    return _because(Fact(text, FactState.BAD, because, object), why)


def warning(text: str, *because: Fact, object: Key | None = None, why: Problem | None = None) -> Fact:
    return _because(Fact(text, FactState.WARNING, because, object), why)


def _because(fact: Fact, why: Problem | None) -> Fact:
    return msgspec.structs.replace(fact, text=f"{fact.text}{why.text}", missing=why.missing) if why else fact


def plain(text: str, *because: Fact, object: Key | None = None) -> Fact:
    return Fact(text, FactState.PLAIN, because, object)


def worst(facts: Iterable[Fact]) -> FactState:
    """Returns bad if anything is, and good if everything that can be is."""
    states = {fact.state for fact in facts}
    return next((s for s in (FactState.BAD, FactState.WARNING, FactState.GOOD) if s in states), FactState.PLAIN)


def honest(fact: Fact) -> Fact:
    """Corrects the state of every line by the ones beneath it: none is good if something beneath it is bad; at best it
    deserves a look."""
    if not fact.because:
        return fact
    because = tuple(map(honest, fact.because))
    state = FactState.WARNING if fact.state is FactState.GOOD and _holds_bad(because) else fact.state
    return msgspec.structs.replace(fact, because=because, state=state)


def _holds_bad(facts: Iterable[Fact]) -> bool:
    return any(fact.state is FactState.BAD or _holds_bad(fact.because) for fact in facts)
