"""A plain table: a headline and rows, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Sequence

from lasthop.base.text.printable import printable


def table(headline: Sequence[str], rows: Sequence[Sequence[str]], *, headers: bool = True) -> str:
    """Returns the lines; an empty cell is a dash."""
    cells = [[printable(cell) or "-" for cell in row] for row in rows]
    shown = [list(headline), *cells] if headers else cells
    widths = [max((len(row[n]) for row in shown), default=0) for n in range(len(headline))]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown)
