"""Merges our part of a status into the current status. Pure, on raw JSON, so that unknown fields are kept.

Our part:
- entries of `parents` and `ancestors` with our controllerName; all others stay byte for byte, in place and order
- conditions of the types that we write; all others stay in place
- `listeners`, as a map by name; and every other field that we set
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, GATEWAY_API, KINDS
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.status import Status
from lasthop.engine.outputs.status.conditions import transition_time
from lasthop.engine.plan.reasons import CONDITION_TYPES

MAX_CONDITIONS: Final = 8
ENTRIES: Final = {"parents": ("parentRef", 32), "ancestors": ("ancestorRef", 16)}
"""The lists that controllers share: the field that identifies an entry, and the CRDs' limit unless `Kind` has another."""
OBSERVED: Final = frozenset(type for type, definition in CONDITION_TYPES.items() if definition.observed)
_STATED: Final = ("status", "reason", "message", "observedGeneration")


class Outdated(Exception):
    """Raised if the stored status has a newer observedGeneration than ours. The watch will deliver that generation."""


def rendered(status: Status | None, kind: str) -> Json:
    """Returns our part as JSON. None removes our entries.

    On a Gateway or GatewayClass, None removes nothing. The object may belong to another controller now, and the Gateway API's
    guide forbids clearing.
    """
    if status is None:
        return _without_entries(kind)
    stated: Json = msgspec.json.decode(msgspec.json.encode(status))  # lists, as in the current status
    for entry in stated.get("parents", ()):
        entry["parentRef"] = {"group": GATEWAY_API, "kind": "Gateway", **entry["parentRef"]}
    for listener in stated.get("listeners", ()):
        listener["supportedKinds"] = [{"group": GATEWAY_API, **supported} for supported in listener["supportedKinds"]]
    if "addresses" in stated:
        stated["addresses"] = [{"type": "IPAddress", **address} for address in stated["addresses"]]
    return stated


def _without_entries(kind: str) -> Json:
    if kind in ROUTE_KINDS:
        return {"parents": []}
    return {"ancestors": []} if kind in KINDS and KINDS[kind].ancestors else {}


def merged(current: Json, ours: Json, now: str, namespace: str = "", kind: str = "") -> Json:
    """Returns the status to write, which equals `current` if nothing changed. Raises `Outdated`.

    `now` is the lastTransitionTime of changed conditions. `namespace` and `kind` are the object's; `namespace` is the default
    of a parentRef.
    """
    result = dict(current)
    for field, stated in ours.items():
        existing = current.get(field) or []
        match field:
            case "conditions":
                value = _conditions(existing, stated, now)
            case "listeners":
                value = [
                    _listener(_named(existing, listener["name"]), listener, now) for listener in _in_order(existing, stated)
                ]
            case "parents" | "ancestors":
                value = _entries(field, existing, stated, now, namespace, kind)
            case _:
                value = stated
        if value != (existing or _empty_like(value)):
            result[field] = value
    return result


def observations(status: Json) -> dict[str, str]:
    """Returns the status of our conditions about observations, by type and Gateway."""
    return {
        f"{condition['type']} {sorted(entry[reference].items())}": condition["status"]
        for field, (reference, _) in ENTRIES.items()
        for entry in status.get(field) or ()
        if _is_ours(entry)
        for condition in entry.get("conditions") or ()
        if condition["type"] in OBSERVED
    }


def without_observations(status: Json) -> Json:
    return {**status, **{field: [_unobserved(entry) for entry in status[field] or ()] for field in ENTRIES if field in status}}


def _unobserved(entry: Json) -> Json:
    if not _is_ours(entry):
        return entry
    return {**entry, "conditions": [c for c in entry.get("conditions") or () if c["type"] not in OBSERVED]}


def _is_ours(entry: Json) -> bool:
    return bool(entry.get("controllerName") == CONTROLLER_NAME)


def generation(ours: Json) -> int:
    """Returns the newest observedGeneration in our part."""
    entries = (*ours.get("parents", ()), *ours.get("ancestors", ()), *ours.get("listeners", ()), ours)
    return max((c["observedGeneration"] for entry in entries for c in entry.get("conditions", ())), default=0)


def _conditions(existing: list[Json], stated: list[Json], now: str) -> list[Json]:
    remaining = {condition["type"]: condition for condition in stated}
    result = []
    for condition in existing:
        new = remaining.pop(condition.get("type", ""), None)
        if new is not None:
            result.append(_condition(condition, new, now))
        elif condition.get("type") not in CONDITION_TYPES:
            result.append(condition)
        elif condition.get("observedGeneration", 0) > max((c["observedGeneration"] for c in stated), default=0):
            raise Outdated
    room = MAX_CONDITIONS - len(result)
    return result + [_condition({}, new, now) for new in list(remaining.values())[: max(0, room)]]


def _condition(existing: Json, stated: Json, now: str) -> Json:
    if existing.get("observedGeneration", 0) > stated["observedGeneration"]:
        raise Outdated
    if all(existing.get(field, "") == stated[field] for field in _STATED):
        return existing
    since = transition_time(existing.get("status"), existing.get("lastTransitionTime"), stated["status"], now)
    return {**existing, "type": stated["type"], **{field: stated[field] for field in _STATED}, "lastTransitionTime": since}


def _named(entries: list[Json], name: str) -> Json:
    return next((entry for entry in entries if entry.get("name") == name), {})


def _in_order(existing: list[Json], stated: list[Json]) -> list[Json]:
    """Sorts listeners in the current order, new ones last."""
    positions = {entry.get("name"): position for position, entry in enumerate(existing)}
    return sorted(stated, key=lambda entry: positions.get(entry["name"], len(positions)))


def _listener(existing: Json, stated: Json, now: str) -> Json:
    return {**existing, **stated, "conditions": _conditions(existing.get("conditions") or [], stated["conditions"], now)}


def _entries(field: str, existing: list[Json], stated: list[Json], now: str, namespace: str, kind: str) -> list[Json]:
    ref, limit = ENTRIES[field]
    limit = (kind in KINDS and KINDS[kind].ancestors) or limit
    remaining = {_identity(entry[ref], namespace): entry for entry in stated}
    result = []
    for entry in existing:
        if entry.get("controllerName") != CONTROLLER_NAME:
            result.append(entry)
            continue
        new = remaining.pop(_identity(entry.get(ref) or {}, namespace), None)
        if new is not None:
            result.append({**entry, "conditions": _conditions(entry.get("conditions") or [], new["conditions"], now)})
    # Entries of other controllers may fill the list. The engine knows, and fails closed if necessary.
    room = max(0, limit - len(result))
    return result + [{**new, "conditions": _conditions([], new["conditions"], now)} for new in list(remaining.values())[:room]]


def _identity(ref: Json, namespace: str) -> tuple[Any, ...]:
    """Returns the identity of a reference, with defaults filled in."""
    group, kind = ref.get("group", GATEWAY_API), ref.get("kind") or "Gateway"
    return (
        group,
        kind,
        ref.get("namespace") or namespace,
        ref.get("name"),
        ref.get("sectionName") or "",
        ref.get("port") or 0,
    )


def _empty_like(value: Any) -> Any:
    """Returns the value that an absent field is equal to: an empty list or a count of zero."""
    return [] if isinstance(value, list) else 0 if isinstance(value, int) else None
