"""Rows of the bench as a table to read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.rows import Row, missed


def number(value: float | None) -> str:
    """Three digits that count; ratios below one as 1/n, which is how goals are written."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    if value is None or value == 0:
        return ""
    return f"1/{number(1 / value)}" if 0 < value < 0.5 else number(value)


def judgement(met: bool | None) -> str:
    return {None: "", True: "met", False: "MISSED"}[met]


def show(rows: Sequence[Row]) -> None:
    table = Table(title_justify="left", title_style="bold")
    for column in ("", "N", "ours", "other", "ours : other", "goal", ""):
        table.add_column(column, no_wrap=True)
    for row in rows:
        verdict = "[bold red]MISSED[/]" if row.met is False else judgement(row.met)
        cells = (f"{row.n:,}", f"{number(row.ours)} {row.unit}", number(row.other), ratio(row.ratio), row.goal, verdict)
        table.add_row(row.what, *cells)
    console = Console(highlight=False)
    console.width = max(console.width, 140)
    console.print(table)
    for row in missed(rows):
        console.print(f"[bold red]missed:[/] {row.what}, N={row.n:,}: {number(row.ours)} {row.unit}, goal {row.goal}")
