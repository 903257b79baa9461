"""Computes READY and WHY of an object from its conditions, for statuses of a cluster and of a running gateway. It has no slow
imports, so that `lasthop status` starts quickly.

conditions (decided per hop by the engine) ──> summary ──> ready.py adds the objects at fault ──> API, page, `lasthop status`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lasthop.base.api.documents import Json
from lasthop.engine.plan.reasons import PARENT_NOT_PROGRAMMED, PROGRAMMED, condition_type

UNREACHED = "no Gateway of this controller uses it"
NO_STATUS = "has no status"


class Summary(NamedTuple):
    ready: str
    """`True`, `False` or `Unknown`; `-` for objects of other controllers and kinds without a status."""
    why: str
    brief: str = ""
    """A short WHY: the cause without the place."""
    reason: str = ""
    """The reason of the deciding condition or finding."""
    because: tuple[str, ...] = ()
    """The other objects at fault, as command arguments: `backendtlspolicy/shop/api`."""
    condition: str = ""
    """The type of the deciding condition; empty if there is none."""


def summary(document: Json, owners: Mapping[str, str] | None = None) -> Summary:
    """Returns True if no condition in our part of the status reports a problem, otherwise the first problem. `owners` maps
    GatewayClasses to controllers, because a Gateway's status does not name its controller."""
    return _others(document, owners or {}) or _ours(document)


def _others(document: Json, owners: Mapping[str, str]) -> Summary | None:
    """Returns `-` for objects that this controller does not serve."""
    from lasthop.base.api.kinds import KINDS, has_status  # here, so that the CLI starts quickly

    kind = document.get("kind", "")
    if kind in KINDS and not has_status(KINDS[kind]):
        return Summary("-", NO_STATUS)
    names = _controllers(document, owners)
    return Summary("-", f"served by {', '.join(names)}") if names else None


def _controllers(document: Json, owners: Mapping[str, str]) -> list[str]:
    """Returns the controllers that serve an object, if this one does not."""
    from lasthop.base.api.kinds import CONTROLLER_NAME

    spec = document.get("spec") or {}
    classes = {"GatewayClass": document["metadata"].get("name"), "Gateway": spec.get("gatewayClassName")}
    owner = owners.get(classes.get(document.get("kind", "")) or "", CONTROLLER_NAME)
    if owner != CONTROLLER_NAME:
        return [owner]
    judged = any(_conditions(document)) or "rejected" in document or "problem" in document
    entries = () if judged else _entries(document)
    return sorted({entry.get("controllerName", CONTROLLER_NAME) for entry in entries} - {CONTROLLER_NAME})


def _ours(document: Json) -> Summary:
    if problem := document.get("rejected"):
        return Summary("False", problem)
    conditions = [(place, condition) for place, group in _groups(document) for condition in group.get("conditions") or ()]
    if not conditions:
        return _by_finding(document) or Summary("Unknown", _without_status(document.get("kind", "")))
    if bad := [(place, condition) for place, condition in conditions if _is_bad(condition)]:
        return _first_problem(document, bad, conditions)
    weakened = dict.fromkeys(c["message"] for _, c in conditions if condition_type(c["type"]).weakened)
    return _out_of_date(document, conditions) or _by_finding(document) or Summary("True", "; ".join(weakened))


def _by_finding(document: Json) -> Summary | None:
    """Returns the problem of an object that no condition reports."""
    problem = document.get("problem")
    return Summary("False", f"{problem['reason']}: {problem['message']}", reason=problem["reason"]) if problem else None


def _is_bad(condition: Json) -> bool:
    type = condition_type(condition["type"])
    if type.weakened or _untried(condition):
        return False
    return bool(condition["status"] == "True") == type.negative


def _out_of_date(document: Json, conditions: list[tuple[ConditionPlace, Json]]) -> Summary | None:
    seen, now = min(c.get("observedGeneration", 0) for _, c in conditions), document["metadata"].get("generation", 0)
    if seen >= now:
        return None
    return Summary("Unknown", f"its status is out of date: it has generation {seen}, the object has {now}")


def _first_problem(
    document: Json, bad: list[tuple[ConditionPlace, Json]], conditions: list[tuple[ConditionPlace, Json]]
) -> Summary:
    place, condition = min(bad, key=lambda pair: pair[1]["status"] == "Unknown")
    where = f"{place.name}: " if place.name else ""
    other_names = sorted({other.name for other, _ in bad} - {place.name, ""}) if place.name else []
    more = (f" ({', '.join(other_names)}: not ready either)" if other_names else "") + _besides(place.name, conditions)
    why = f"{condition['reason']}: {condition['message']}"
    return Summary(
        "Unknown" if condition["status"] == "Unknown" else "False",
        f"{where}{why}{more}",
        f"{_words_of_failure(condition) or why}{more}",
        condition["reason"],
        _unserved(document, place, condition),
        condition["type"],
    )


def _unserved(document: Json, place: ConditionPlace, condition: Json) -> tuple[str, ...]:
    """Returns the Gateway or ListenerSet that keeps an object from being served."""
    if condition["type"] != PROGRAMMED or condition["reason"] != PARENT_NOT_PROGRAMMED:
        return ()
    if document.get("kind") == "ListenerSet":
        ref = document.get("spec", {}).get("parentRef") or {}
        place = _place(ref, document["metadata"].get("namespace", ""))
    return (place.argument,) if place.argument else ()


def _without_status(kind: str) -> str:
    from lasthop.base.api.kinds import KINDS  # here, so that the CLI starts quickly
    from lasthop.base.api.unserved import NOT_SERVED, Unserved

    return NOT_SERVED.format(kind) if kind in KINDS and KINDS[kind].struct is Unserved else UNREACHED


def _words_of_failure(condition: Json) -> str:
    """Returns the cause from a condition that reports failing connections."""
    from lasthop.engine.plan.observation import failure_words  # here, so that the CLI starts quickly

    return failure_words(condition["message"]) if condition_type(condition["type"]).observed else ""


def _untried(condition: Json) -> bool:
    """Returns whether no traffic was observed yet, which does not count as a problem."""
    return condition["status"] == "Unknown" and condition_type(condition["type"]).observed


def observed(document: Json) -> str:
    """Returns the observed state of connections, for an object without problems."""
    return next((c["message"] or _words(c["reason"]) for c in _conditions(document) if condition_type(c["type"]).observed), "")


def _words(reason: str) -> str:
    """Converts `HandshakesSucceed` to `handshakes succeed`."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in reason).strip()


def _conditions(document: Json) -> Iterator[Json]:
    return (condition for _, group in _groups(document) for condition in group.get("conditions") or ())


def _besides(name: str, conditions: list[tuple[ConditionPlace, Json]]) -> str:
    """Returns a weakening at another Gateway, for an object that is refused at one."""
    weakened = ((other.name, c) for other, c in conditions if condition_type(c["type"]).weakened)
    return next((f"; {other}: {c['message']}" for other, c in weakened if other != name), "")


class ConditionPlace(NamedTuple):
    """The subject of conditions: the object itself, one of its listeners, a parent or an ancestor."""

    name: str = ""
    argument: str = ""
    """The parent or ancestor as a command argument."""


def _place(ref: Json, namespace: str = "") -> ConditionPlace:
    path = f"{ref.get('namespace') or namespace}/{ref.get('name', '')}".lstrip("/")
    return ConditionPlace(path, f"{(ref.get('kind') or 'Gateway').lower()}/{path}")


def _groups(document: Json) -> Iterator[tuple[ConditionPlace, Json]]:
    from lasthop.base.api.kinds import CONTROLLER_NAME  # here, so that the CLI starts quickly

    status = document.get("status") or {}
    yield ConditionPlace(), status
    yield from ((ConditionPlace(listener["name"]), listener) for listener in status.get("listeners") or ())
    for entry in _entries(document):
        if entry.get("controllerName", CONTROLLER_NAME) == CONTROLLER_NAME:
            yield _place(entry.get("parentRef") or entry["ancestorRef"]), entry


def _entries(document: Json) -> tuple[Json, ...]:
    status = document.get("status") or {}
    return (*(status.get("parents") or ()), *(status.get("ancestors") or ()))
