"""Rows of the status table: what is not ready first, and each cause told once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.engine.outputs.status.summary import UNREACHED, failures, is_failing, observed, summary

if TYPE_CHECKING:
    from lasthop.base.api.meta import Key

_ORDER: Final = {"False": 0, "Unknown": 1}
_CAUSES: Final = ("GatewayClass", "BackendTLSPolicy", "XBackend", "Service", "Gateway", "ListenerSet")
"""Kinds whose problems are the cause of others', the first causes first; routes are never one."""
_FIRST: Final = 86_400.0
"""Nothing is older: what comes from a file, and does not say how old it is, is as old as Unix time."""


class Row(NamedTuple):
    name: str
    ready: str
    why: str
    brief: str = ""
    """WHY where there is no room for all of it; empty: it is cut."""
    wide: tuple[str, ...] = ("", "", "", "", "")
    """CLASS, ADDRESS, PORTS, HOSTNAMES, AGE."""
    kind: str = ""
    cause: str = ""
    """The name of the row that tells why."""

    def because_of(self, name: str) -> Row:
        return self._replace(
            ready="Unknown" if self.ready == "Unknown" else "False", why=f"because of {name}", brief="", cause=name
        )


def class_owners(documents: Iterable[Json]) -> dict[str, str]:
    """Returns the controller of each GatewayClass."""
    return {d["metadata"]["name"]: d["spec"]["controllerName"] for d in documents if d["kind"] == "GatewayClass"}


def row(document: Json, owners: Mapping[str, str] | None = None) -> Row:
    """Returns the row of an object. `owners` of GatewayClasses, because a Gateway's status does not say who has written it."""
    from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS, has_status

    key = _key(document)
    name, wide = key.argument, _wide(document)
    if not has_status(KINDS[key.kind]):
        return Row(name, "-", f"has no status; see: lasthop explain {name}", wide=wide)
    class_name = {"GatewayClass": key.name, "Gateway": document.get("spec", {}).get("gatewayClassName")}.get(key.kind)
    owner = (owners or {}).get(class_name or "", CONTROLLER_NAME)
    if owner != CONTROLLER_NAME:
        return Row(name, "-", f"served by {owner}", wide=wide)
    others = foreign(document)
    if others and summary(document).why == UNREACHED:
        return Row(name, "-", f"served by {', '.join(others)}", wide=wide)
    return Row(name, *summary(document), wide, key.kind)


def foreign(document: Json) -> list[str]:
    """Returns the other controllers that have written to its status."""
    from lasthop.base.api.kinds import CONTROLLER_NAME

    status = document.get("status") or {}
    entries = (*(status.get("parents") or ()), *(status.get("ancestors") or ()))
    return sorted({each.get("controllerName", CONTROLLER_NAME) for each in entries} - {CONTROLLER_NAME})


def with_traffic(rows: Iterable[Row], documents: Collection[Json], failing: Collection[str]) -> list[Row]:
    """Returns the rows; a route is not ready if connections to a backend of its fail, which its own conditions may not say.
    `failing`: Services without a policy to which they do, as `shop/api`."""
    from lasthop.base.api.meta import Key
    from lasthop.base.api.route_kinds import ROUTE_KINDS

    services = (Key.read("Service", path) for path in failing)
    causes = {key: key for key in services}
    for document in documents:
        key = _key(document)
        if is_failing(document) and key.kind not in ROUTE_KINDS:
            backends = [key]
            if key.kind == "BackendTLSPolicy":
                refs = document.get("spec", {}).get("targetRefs", ())
                backends = [Key("Service", key.namespace, ref.get("name", "")) for ref in refs]
            causes |= dict.fromkeys(backends, key)
    found = []
    for each, document in zip(rows, documents, strict=True):
        cause = next((causes[backend] for backend in _backends(document) if backend in causes), None)
        found.append(each.because_of(cause.argument) if cause and each.ready == "True" else each)
    return found


def _backends(document: Json) -> Iterator[Key]:
    """Yields what the rules of a route refer to."""
    from lasthop.base.api.meta import Key
    from lasthop.base.api.route_kinds import ROUTE_KINDS

    for rule in document.get("spec", {}).get("rules", ()) if document["kind"] in ROUTE_KINDS else ():
        for ref in _refs(rule) if isinstance(rule, dict) else ():
            namespace = ref.get("namespace") or document["metadata"].get("namespace", "")
            yield Key(ref.get("kind") or "Service", namespace, ref.get("name", ""))


def _refs(part: Json) -> Iterator[Json]:
    """Yields the backendRefs of a rule and of its filters, and of those of its backendRefs."""
    for ref in part.get("backendRefs") or ():
        yield ref
        yield from _refs({"filters": ref.get("filters")})
    for each in part.get("filters") or ():
        yield from (ref for name in ("requestMirror", "externalAuth") if (ref := (each.get(name) or {}).get("backendRef")))


def failing_services(documents: Iterable[Json]) -> dict[str, str]:
    """Returns the Services without a policy to which connections fail, as `shop/api`, and why: routes that lead there say so.
    A Service that such a route does not refer to is not believed: messages quote what backends say."""
    from lasthop.base.api.meta import Key
    from lasthop.engine.plan.messages import SEPARATOR

    found: dict[str, str] = {}
    for document in documents:
        backends = set(_backends(document))
        for place, condition in failures(document) if backends else ():
            for sentence in condition["message"].split(SEPARATOR):
                about = next(Key.mentioned(sentence), None)
                if about and about.kind == "Service" and about in backends:
                    found.setdefault(about.path, f"at {place}: {sentence}")
    return found


def arranged(rows: Iterable[Row], failing: Collection[str] = ()) -> list[Row]:
    """Returns what is not ready first, causes before what follows from them; and instead of a cause that another row tells,
    or the line of a Service in `failing`, the name of that."""
    from lasthop.base.api.meta import Key

    known = list(rows)
    services = (Key.read("Service", path) for path in failing)
    bad = {each.name for each in known if each.ready in _ORDER}.union(key.argument for key in services)
    return sorted((_pointing(each, bad) for each in known), key=lambda each: (_ORDER.get(each.ready, 2), bool(each.cause)))


def _pointing(row: Row, bad: Collection[str]) -> Row:
    from lasthop.base.api.meta import Key

    if row.ready not in _ORDER or row.cause:
        return row
    causes = (key for key in Key.mentioned(row.why) if _rank(key.kind) < _rank(row.kind) and key.argument in bad)
    cause = next((key.argument for key in causes if key.argument != row.name), "")
    return row.because_of(cause) if cause else row


def _rank(kind: str) -> int:
    return _CAUSES.index(kind) if kind in _CAUSES else len(_CAUSES)


def _key(document: Json) -> Key:
    from lasthop.base.api.meta import Key

    return Key(document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"])


# --- the other columns -----------------------------------------------------------------------------------------------


def noted(row: Row, document: Json) -> Row:
    """Returns the row with what has happened, where nothing is wrong."""
    return row._replace(why=observed(document)) if row.ready == "True" and not row.why else row


def _wide(document: Json) -> tuple[str, ...]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    listeners = spec.get("listeners") or () if document["kind"] in ("Gateway", "ListenerSet") else ()
    addresses = [str(each.get("value", "")) for each in status.get("addresses") or ()]
    ports = dict.fromkeys(str(each.get("port", "")) for each in listeners)
    names = [*(spec.get("hostnames") or ()), *(each["hostname"] for each in listeners if each.get("hostname"))]
    return (
        str(spec.get("gatewayClassName", "")),
        ",".join(addresses),
        ",".join(ports),
        ",".join(dict.fromkeys(map(str, names))),
        age(document["metadata"].get("creationTimestamp") or "", time.time()),
    )


def age(created: str, now: float) -> str:
    """Returns `5d`, `3h20m`, as kubectl writes it; empty if it is not known."""
    try:
        since = datetime.fromisoformat(created).timestamp()
    except ValueError:
        return ""
    if since < _FIRST:
        return ""  # a file that says nothing about it
    seconds = int(now - since)
    if seconds < 120:
        return f"{max(0, seconds)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d" if days < 730 else f"{days // 365}y"
