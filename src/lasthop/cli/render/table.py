"""The status table: NAME, READY, WHY, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import click

from lasthop.api.documents import Json
from lasthop.cli.render.terminal import width, wrapped
from lasthop.outputs.status.summary import UNREACHED, summary
from lasthop.printable import clean

COLOURS = {"True": "green", "False": "red", "Unknown": "yellow", "Gone": "yellow"}
NARROWEST = 30
"""The minimum width of WHY; a narrower terminal wraps the lines itself."""


class Row(NamedTuple):
    name: str
    ready: str
    why: str


def class_owners(documents: Iterable[Json]) -> dict[str, str]:
    return {d["metadata"]["name"]: d["spec"]["controllerName"] for d in documents if d["kind"] == "GatewayClass"}


def row(document: Json, owners: Mapping[str, str] | None = None) -> Row:
    """Returns the row of an object. `owners` of GatewayClasses, because a Gateway's status does not say who has written it."""
    from lasthop.api.kinds import CONTROLLER_NAME, KINDS, has_status

    kind, metadata = document["kind"], document["metadata"]
    name = "/".join(part for part in (kind.lower(), metadata.get("namespace", ""), metadata["name"]) if part)
    if not has_status(KINDS[kind]):
        return Row(name, "-", f"has no status; see: lasthop explain {name}")
    class_name = {"GatewayClass": metadata["name"], "Gateway": document.get("spec", {}).get("gatewayClassName")}.get(kind)
    owner = (owners or {}).get(class_name or "", CONTROLLER_NAME)
    if owner != CONTROLLER_NAME:
        return Row(name, "-", f"served by {owner}")
    others = foreign(document)
    if others and summary(document)[1] == UNREACHED:
        return Row(name, "-", f"served by {', '.join(others)}")
    return Row(name, *summary(document))


def foreign(document: Json) -> list[str]:
    """Returns the other controllers that have written to its status."""
    from lasthop.api.kinds import CONTROLLER_NAME

    status = document.get("status") or {}
    entries = (*(status.get("parents") or ()), *(status.get("ancestors") or ()))
    return sorted({each.get("controllerName", CONTROLLER_NAME) for each in entries} - {CONTROLLER_NAME})


class Columns(NamedTuple):
    name: int
    ready: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Columns:
        return cls(max((len(each.name) for each in rows), default=20), len("Unknown"))

    def head(self) -> str:
        return click.style(f"{'NAME':{self.name}}  {'READY':{self.ready}}  WHY", bold=True)

    def line(self, row: Row) -> str:
        row = clean(row)
        indent = self.name + self.ready + 4
        room = max(NARROWEST, width() - indent)
        why = wrapped(row.why, columns=room) or [""]
        ready = click.style(row.ready, fg=COLOURS.get(row.ready))
        gap = " " * (self.ready - len(row.ready) + 2)
        first = f"{row.name:{self.name}}  {ready}{gap if row.why else ''}{why[0]}"
        return "\n".join([first, *(" " * indent + more for more in why[1:])])

    def gone(self, name: str) -> str:
        return self.line(Row(name, "Gone", ""))
