"""Renders the status table: objects that are not ready first, each cause once, as wide as the terminal."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final, NamedTuple

import click

from lasthop.base.api.documents import Json, nested
from lasthop.base.text.printable import clean
from lasthop.cli.render.terminal import width
from lasthop.engine.outputs.status.summary import NO_STATUS, observed

COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow", "Gone": "yellow"}
WIDE: Final = ("CLASS", "ADDRESS", "PORTS", "HOSTNAMES", "AGE")
NARROWEST: Final = 24
"""Minimum width of WHY; a narrower terminal wraps the lines itself."""
GAP: Final = "  "
_ORDER: Final = {"False": 0, "Unknown": 1}
_SERVICE: Final = "service/"
_FIRST: Final = 86_400.0
"""The smallest creation time that is shown: objects in files without a creationTimestamp have 0."""


class Row(NamedTuple):
    name: str
    ready: str
    why: str
    brief: str = ""
    """A shorter WHY for narrow terminals; empty: cut the full one."""
    wide: tuple[str, ...] = ("", "", "", "", "")
    """CLASS, ADDRESS, PORTS, HOSTNAMES, AGE."""
    because: tuple[str, ...] = ()
    """Other objects that are the cause."""


def row(document: Json) -> Row:
    ready = document["ready"]
    metadata = document["metadata"]
    path = "/".join(filter(None, (metadata.get("namespace", ""), metadata["name"])))
    name = f"{document['kind'].lower()}/{path}"
    because = tuple(ready["because"]) if ready["ready"] in _ORDER else ()
    why = f"{ready['why']}; see: lasthop explain {name}" if ready["why"] == NO_STATUS else ready["why"]
    return Row(name, ready["ready"], why, ready["brief"], _wide(document), because)


def failing_services(rows: Iterable[Row]) -> dict[str, str]:
    """Returns the Services that make these objects not ready, with reasons. A Service has no status to carry them."""
    services: dict[str, str] = {}
    for entry in rows:
        for name in entry.because:
            if name.startswith(_SERVICE):
                services.setdefault(name, entry.why)
    return services


def arranged(rows: Iterable[Row]) -> list[Row]:
    """Sorts objects that are not ready first, causes before consequences. If other rows or lines of Services have the reason,
    WHY refers to those."""
    all_rows = list(rows)
    bad = {entry.name for entry in all_rows if entry.ready in _ORDER}
    return sorted(
        (_with_causes(entry, bad) for entry in all_rows), key=lambda entry: (_ORDER.get(entry.ready, 2), bool(entry.because))
    )


def _with_causes(row: Row, bad: Collection[str]) -> Row:
    if not row.because:
        return row
    names = f"because of {', '.join(row.because)}"
    if all(name in bad or name.startswith(_SERVICE) for name in row.because):
        return row._replace(why=names, brief="")
    return row._replace(why=f"{names}: {row.why}", brief=f"{names}: {row.brief}" if row.brief else "")


# --- the other columns -----------------------------------------------------------------------------------------------


def with_observation(row: Row, document: Json) -> Row:
    """Returns the row with its observation, if it has no problem."""
    return row._replace(why=observed(document)) if row.ready == "True" and not row.why else row


def _wide(document: Json) -> tuple[str, ...]:
    spec = document.get("spec") or {}
    listeners = spec.get("listeners") or () if document["kind"] in ("Gateway", "ListenerSet") else ()
    names = [*(spec.get("hostnames") or ()), *(listener.get("hostname") for listener in listeners)]
    return (
        str(spec.get("gatewayClassName", "")),
        _listed(address.get("value", "") for address in nested(document, "status", "addresses") or ()),
        _listed(listener.get("port", "") for listener in listeners),
        _listed(filter(None, names)),
        age(document["metadata"].get("creationTimestamp") or "", time.time()),
    )


def _listed(values: Iterable[object]) -> str:
    return ",".join(dict.fromkeys(map(str, values)))


def age(created: str, now: float) -> str:
    """Returns `5d`, `3h20m`, as kubectl writes it; empty if it is not known."""
    try:
        since = datetime.fromisoformat(created).timestamp()
    except ValueError:
        return ""
    if since < _FIRST:
        return ""  # a file without a creationTimestamp
    seconds = int(now - since)
    if seconds < 120:
        return f"{max(0, seconds)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d" if days < 730 else f"{days // 365}y"


# --- as lines --------------------------------------------------------------------------------------------------------


class Columns(NamedTuple):
    name: int
    ready: int
    wide: tuple[int, ...] = ()
    """Empty: only NAME, READY and WHY, which is cut to the terminal's width."""

    @classmethod
    def of(cls, rows: Iterable[Row], *, wide: bool = False) -> Columns:
        cleaned = clean(list(rows))
        more = tuple(max(len(head), *(len(entry.wide[n]) for entry in cleaned), 0) for n, head in enumerate(WIDE))
        return cls(max((len(entry.name) for entry in cleaned), default=20), len("Unknown"), more if wide else ())

    def head(self) -> str:
        return click.style(self._joined("NAME", "READY", WIDE, "WHY"), bold=True)

    def line(self, row: Row) -> str:
        row = clean(row)
        indent = len(self._joined("", "", ("",) * len(WIDE), ""))
        why = row.why if self.wide else _cut(row, max(NARROWEST, width() - indent))
        return self._joined(row.name, row.ready, row.wide, why, COLOURS.get(row.ready))

    def gone(self, name: str) -> str:
        return self.line(Row(name, "Gone", ""))

    def _joined(self, name: str, ready: str, wide: tuple[str, ...], why: str, colour: str | None = None) -> str:
        more = [f"{text or '-':{size}}" for text, size in zip(wide, self.wide, strict=False)]
        shown = f"{click.style(ready, fg=colour) if colour else ready}{' ' * (self.ready - len(ready))}"
        parts = [f"{name:{self.name}}", shown, *more]
        return f"{GAP.join(parts)}{GAP}{why}" if why or not name else GAP.join(parts).rstrip()


def _cut(row: Row, room: int) -> str:
    text = row.why if len(row.why) <= room else row.brief or row.why
    return text if len(text) <= room else f"{text[: room - 1]}…"
