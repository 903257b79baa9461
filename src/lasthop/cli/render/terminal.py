"""The terminal: how wide it is, if there is one, and what may be written to it."""

from __future__ import annotations

import shutil
import sys

import click

from lasthop.printable import printable

PIPED = 100_000
"""A width that never breaks a line: programs read lines."""


def note(line: str) -> None:
    """Says something beside the output, on standard error."""
    click.echo(printable(line), err=True)


def width() -> int:
    if not sys.stdout.isatty():
        return PIPED
    return max(40, shutil.get_terminal_size((100, 24)).columns)
