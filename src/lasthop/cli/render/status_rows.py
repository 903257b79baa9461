"""Rows of the status table: what is not ready first, and each cause told once."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from lasthop.api.documents import Json
from lasthop.outputs.status.summary import UNREACHED, failures, is_failing, observed, summary

BECAUSE: Final = "because of "
"""Before the name of the row that has the cause."""
_ORDER: Final = {"False": 0, "Unknown": 1}
_CAUSES: Final = ("gatewayclass", "backendtlspolicy", "xbackend", "service", "gateway", "listenerset")
"""Kinds whose problems are the cause of others', the first causes first; routes are never one."""
_OBJECT: Final = re.compile(r"\b([A-Z][A-Za-z]+) ((?:[a-z0-9.-]+/)?[a-z0-9.-]*[a-z0-9])")
"""`BackendTLSPolicy shop/api`, in a message."""


_SERVICE: Final = re.compile(r"(?:\d+ of \d+ endpoints of )?Service ([a-z0-9.-]+/[a-z0-9.-]+):\d+\b")
"""How a sentence about a port begins: `Service shop/api:80 (10.0.0.1:8080): connection refused`."""
_FIRST: Final = 86_400.0
"""Nothing is older: what comes from a file, and does not say how old it is, is as old as Unix time."""


class Row(NamedTuple):
    name: str
    ready: str
    why: str
    wide: tuple[str, ...] = ("", "", "", "", "")
    """CLASS, ADDRESS, PORTS, HOSTNAMES, AGE."""


def class_owners(documents: Iterable[Json]) -> dict[str, str]:
    """Returns the controller of each GatewayClass."""
    return {d["metadata"]["name"]: d["spec"]["controllerName"] for d in documents if d["kind"] == "GatewayClass"}


def row(document: Json, owners: Mapping[str, str] | None = None) -> Row:
    """Returns the row of an object. `owners` of GatewayClasses, because a Gateway's status does not say who has written it."""
    from lasthop.api.kinds import CONTROLLER_NAME, KINDS, has_status

    kind, metadata = document["kind"], document["metadata"]
    name, wide = _name(kind, metadata.get("namespace", ""), metadata["name"]), _wide(document)
    if not has_status(KINDS[kind]):
        return Row(name, "-", f"has no status; see: lasthop explain {name}", wide)
    class_name = {"GatewayClass": metadata["name"], "Gateway": document.get("spec", {}).get("gatewayClassName")}.get(kind)
    owner = (owners or {}).get(class_name or "", CONTROLLER_NAME)
    if owner != CONTROLLER_NAME:
        return Row(name, "-", f"served by {owner}", wide)
    others = foreign(document)
    if others and summary(document)[1] == UNREACHED:
        return Row(name, "-", f"served by {', '.join(others)}", wide)
    return Row(name, *summary(document), wide)


def foreign(document: Json) -> list[str]:
    """Returns the other controllers that have written to its status."""
    from lasthop.api.kinds import CONTROLLER_NAME

    status = document.get("status") or {}
    entries = (*(status.get("parents") or ()), *(status.get("ancestors") or ()))
    return sorted({each.get("controllerName", CONTROLLER_NAME) for each in entries} - {CONTROLLER_NAME})


def with_traffic(rows: Iterable[Row], documents: Collection[Json], failing: Collection[str]) -> list[Row]:
    """Returns the rows; a route is not ready if connections to a backend of its fail, which its own conditions may not say.
    `failing`: Services without a policy to which they do, as `shop/api`."""
    causes = {f"Service {path}": _name("Service", *path.split("/", 1)) for path in failing}
    for document in documents:
        if is_failing(document) and not document["kind"].endswith("Route"):
            kind, namespace, name = document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]
            backends = [f"{kind} {namespace}/{name}"]
            if kind == "BackendTLSPolicy":
                refs = document.get("spec", {}).get("targetRefs", ())
                backends = [f"Service {namespace}/{ref.get('name', '')}" for ref in refs]
            causes |= dict.fromkeys(backends, _name(kind, namespace, name))
    found = []
    for each, document in zip(rows, documents, strict=True):
        cause = next((causes[backend] for backend in _backends(document) if backend in causes), "")
        found.append(each._replace(ready="False", why=f"{BECAUSE}{cause}") if cause and each.ready == "True" else each)
    return found


def _backends(document: Json) -> Iterator[str]:
    """Yields what the rules of a route refer to, as `Service shop/api`."""
    for rule in document.get("spec", {}).get("rules", ()) if document["kind"].endswith("Route") else ():
        for ref in _refs(rule) if isinstance(rule, dict) else ():
            namespace = ref.get("namespace") or document["metadata"].get("namespace", "")
            yield f"{ref.get('kind') or 'Service'} {namespace}/{ref.get('name', '')}"


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
    from lasthop.plan.messages import SEPARATOR

    found: dict[str, str] = {}
    for document in documents:
        backends = set(_backends(document))
        for place, condition in failures(document) if backends else ():
            for sentence in condition["message"].split(SEPARATOR):
                named = _SERVICE.match(sentence)
                if named and f"Service {named[1]}" in backends:
                    found.setdefault(named[1], f"at {place}: {sentence}")
    return found


def arranged(rows: Iterable[Row], failing: Collection[str] = ()) -> list[Row]:
    """Returns what is not ready first, causes before what follows from them; and instead of a cause that another row tells,
    or the line of a Service in `failing`, the name of that."""
    known = list(rows)
    bad = {each.name for each in known if each.ready in _ORDER} | {_name("Service", *path.split("/", 1)) for path in failing}
    return sorted((_pointing(each, bad) for each in known), key=lambda each: (_ORDER.get(each.ready, 2), _points(each)))


def _points(row: Row) -> bool:
    return row.why.startswith(BECAUSE)


def _pointing(row: Row, bad: Collection[str]) -> Row:
    if row.ready not in _ORDER:
        return row
    own = _rank(row.name)
    for kind, path in _OBJECT.findall(row.why):
        name = f"{kind.lower()}/{path}"
        if name in bad and name != row.name and _rank(name) < own:
            return row._replace(why=f"{BECAUSE}{name}")
    return row


def _rank(name: str) -> int:
    kind = name.partition("/")[0]
    return _CAUSES.index(kind) if kind in _CAUSES else len(_CAUSES)


def _name(kind: str, namespace: str, name: str) -> str:
    return "/".join(part for part in (kind.lower(), namespace, name) if part)


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
    """`5d`, `3h20m`, as kubectl writes it; empty if it is not known."""
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
