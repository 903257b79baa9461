"""An object's status in two words: READY, and WHY not. Imports nothing heavy: `lasthop status` is to start quickly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lasthop.base.api.documents import Json
from lasthop.engine.plan.reasons import condition_type

UNREACHED = "no Gateway of this controller uses it"


class Summary(NamedTuple):
    ready: str
    """`True`, `False` or `Unknown`."""
    why: str
    brief: str = ""
    """WHY where there is no room for all of it: what is wrong, and not where."""


def summary(document: Json) -> Summary:
    """Returns True if nothing in our part of the status is bad news, otherwise the first bad news."""
    if problem := document.get("rejected"):
        return Summary("False", problem)
    found = [(name, condition) for name, group in _groups(document) for condition in group.get("conditions") or ()]
    problem = document.get("problem", "")
    if not found:
        return Summary("False", problem) if problem else Summary("Unknown", _without_status(document.get("kind", "")))
    told = [(name, c) for name, c in found if not (condition_type(c["type"]).weakened or _untried(c))]
    bad = [(name, c) for name, c in told if (c["status"] == "True") == condition_type(c["type"]).negative]
    for name, condition in sorted(bad, key=lambda each: each[1]["status"] == "Unknown"):
        where = f"{name}: " if name else ""
        others = sorted({other for other, _ in bad} - {name, ""}) if name else []
        more = (f" ({', '.join(others)}: not ready either)" if others else "") + _besides(name, found)
        ready = "Unknown" if condition["status"] == "Unknown" else "False"
        why = f"{condition['reason']}: {condition['message']}"
        return Summary(ready, f"{where}{why}{more}", f"{_words_of_failure(condition) or why}{more}")
    seen, now = min(c.get("observedGeneration", 0) for _, c in found), document["metadata"].get("generation", 0)
    if seen < now:
        return Summary("Unknown", f"its status is out of date: of generation {seen}, and the object has generation {now}")
    if problem:
        return Summary("False", problem)
    return Summary("True", next((c["message"] for _, c in found if condition_type(c["type"]).weakened), ""))


def _without_status(kind: str) -> str:
    from lasthop.base.api.kinds import KINDS  # here, so that the CLI starts quickly
    from lasthop.base.api.unserved import NOT_SERVED, Unserved

    return NOT_SERVED.format(kind) if kind in KINDS and KINDS[kind].struct is Unserved else UNREACHED


def _words_of_failure(condition: Json) -> str:
    """Returns why connections fail, of a condition that says so."""
    from lasthop.engine.plan.observation import failure_words  # here, so that the CLI starts quickly

    return failure_words(condition["message"]) if condition_type(condition["type"]).observed else ""


def _untried(condition: Json) -> bool:
    """Returns whether nothing has happened yet, which is not bad news."""
    return condition["status"] == "Unknown" and condition_type(condition["type"]).observed


def is_failing(document: Json) -> bool:
    """Returns whether connections to its backends fail."""
    return any(failures(document))


def failures(document: Json) -> Iterator[tuple[str, Json]]:
    """Yields the conditions that say so, each with the Gateway that it is about."""
    for name, group in _groups(document):
        for condition in group.get("conditions") or ():
            if condition["status"] == "False" and condition_type(condition["type"]).observed:
                yield name, condition


def observed(document: Json) -> str:
    """Returns what is known of connections to its backends, of an object that nothing is wrong with."""
    return next((c["message"] or _words(c["reason"]) for c in _conditions(document) if condition_type(c["type"]).observed), "")


def _words(reason: str) -> str:
    """Writes `HandshakesSucceed` as `handshakes succeed`."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in reason).strip()


def _conditions(document: Json) -> Iterator[Json]:
    return (condition for _, group in _groups(document) for condition in group.get("conditions") or ())


def _besides(name: str, found: list[tuple[str, Json]]) -> str:
    """Returns what is weakened elsewhere, of an object that is refused at one Gateway: both are worth knowing."""
    elsewhere = (f"; {other}: {c['message']}" for other, c in found if condition_type(c["type"]).weakened and other != name)
    return next(elsewhere, "")


def _groups(document: Json) -> Iterator[tuple[str, Json]]:
    from lasthop.base.api.kinds import CONTROLLER_NAME  # here, so that the CLI starts quickly

    status = document.get("status") or {}
    yield "", status
    yield from ((listener["name"], listener) for listener in status.get("listeners") or ())
    for entry in (*(status.get("parents") or ()), *(status.get("ancestors") or ())):
        if entry.get("controllerName", CONTROLLER_NAME) == CONTROLLER_NAME:
            ref = entry.get("parentRef") or entry.get("ancestorRef")
            yield f"{ref.get('namespace', '')}/{ref['name']}".lstrip("/"), entry
