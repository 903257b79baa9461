"""Writes to the terminal: notes, text wrapped to its width, times, plain tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from lasthop.base.text.printable import printable

PIPED = 100_000
"""A width that never breaks a line, because programs read lines."""


def note(line: str) -> None:
    """Writes a line to standard error, beside the output."""
    click.echo(printable(line), err=True)


def note_once(line: str) -> None:
    """Writes a line to standard error unless this command has written it already."""
    context = click.get_current_context(silent=True)
    noted: set[str] = context.meta.setdefault("lasthop.noted", set()) if context else set()
    if line not in noted:
        noted.add(line)
        note(line)


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """Wraps a text to the terminal's width; `first` and `rest` begin its lines. Never breaks commands and paths, so that users
    can copy them."""
    import textwrap

    if text and text == text.strip() and text.isprintable() and len(first) + len(text) <= width():
        return [f"{first}{text}"]
    return textwrap.wrap(
        text, width(), initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def minute(at: float) -> str:
    """Returns a Unix time as `2026-11-16 10:00 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def width() -> int:
    if not sys.stdout.isatty():
        return PIPED
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def table(headline: Sequence[str], rows: Sequence[Sequence[str]], *, headers: bool = True) -> str:
    """Formats a header and rows like kubectl; an empty cell is a dash."""
    cells = [[printable(cell) or "-" for cell in row] for row in rows]
    shown = [list(headline), *cells] if headers else cells
    widths = [max((len(row[n]) for row in shown), default=0) for n in range(len(headline))]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown)
