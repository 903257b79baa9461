"""Renders an explanation as a tree, for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from lasthop.base.api.documents import Json

MARKS: Final = {"good": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}


def drawn(fact: Json, first: str = "", rest: str = "") -> Iterator[str]:
    mark, colour = MARKS.get(fact.get("state", ""), ("", None))
    shown = f"{click.style(mark, fg=colour, bold=True)} {fact['text']}" if mark else fact["text"]
    place = click.style(f"  {fact['place']}", dim=True) if fact.get("place") else ""
    yield f"{first}{shown}{place}"
    because = fact.get("because", ())
    for number, each in enumerate(because, 1):
        branch, trunk = ("└─ ", "   ") if number == len(because) else ("├─ ", "│  ")
        yield from drawn(each, rest + branch, rest + trunk)
