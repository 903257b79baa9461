"""The status table: NAME, READY, WHY, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import click

from lasthop.base.text.printable import clean
from lasthop.cli.render.status_rows import Row
from lasthop.cli.render.terminal import width

COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow", "Gone": "yellow"}
WIDE: Final = ("CLASS", "ADDRESS", "PORTS", "HOSTNAMES", "AGE")
NARROWEST: Final = 24
"""The minimum width of WHY; a narrower terminal wraps the lines itself."""
GAP: Final = "  "


class Columns(NamedTuple):
    name: int
    ready: int
    wide: tuple[int, ...] = ()
    """Empty: only NAME, READY and WHY, which is cut to the terminal's width."""

    @classmethod
    def of(cls, rows: Iterable[Row], *, wide: bool = False) -> Columns:
        found = clean(list(rows))
        more = tuple(max(len(head), *(len(each.wide[n]) for each in found), 0) for n, head in enumerate(WIDE))
        return cls(max((len(each.name) for each in found), default=20), len("Unknown"), more if wide else ())

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
    """Returns as much of WHY as fits."""
    text = row.why if len(row.why) <= room else row.brief or row.why
    return text if len(text) <= room else f"{text[: room - 1]}…"
