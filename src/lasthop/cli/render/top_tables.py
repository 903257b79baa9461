"""Renders the tables of `lasthop top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import click

from lasthop.base.api.documents import Json
from lasthop.base.text.printable import printable
from lasthop.cli.render.audit_observed import ago

FIGURES: Final = ("REQ/S", "ERRORS", "P50", "P99", "ACTIVE")
BAD: Final = ("failing", "partly failing")
OTHERS: Final = 54
"""Characters of the columns between the name and STATE."""


class TableLine(NamedTuple):
    name: str
    figures: tuple[str, ...]
    more: tuple[str, ...] = ()
    bad: bool = False


def route_lines(report: Json) -> list[TableLine]:
    return [
        TableLine(printable(route["route"]), _figures(route["figures"]), bad=_errors(route) > 0)
        for route in sorted(
            report["routes"], key=lambda route: (-_errors(route), -route["figures"]["per_second"], route["route"])
        )
    ]


def backend_lines(report: Json, now: float) -> list[TableLine]:
    """Returns a line for each Gateway and port; protocols of the same backend share it."""
    return [_backend(hop, now) for hop in _joined(report["hops"])]


def _backend(hop: Json, now: float) -> TableLine:
    kind = "" if hop["kind"] == "Service" else f"{hop['kind']} "
    bad = hop["health"] in BAD
    words = "; ".join(failure["words"] for failure in hop["failures"])
    state = f"{hop['health']}: {words}" if bad else _connected(hop, now)
    name = f"{hop['gateway']} -> {kind}{hop['backend']}:{hop['port']}"
    return TableLine(printable(name), _figures(hop["figures"]), (f"{hop['handshakes']:,}", printable(state)), bad)


def _connected(hop: Json, now: float) -> str:
    """Returns the state of a backend whose connections succeed. The share of failed requests is a separate fact."""
    if not hop["last_success"]:
        return str(hop["health"])
    success = "handshake" if hop["handshakes"] else "connected"
    figures = hop["figures"]
    errors = figures["errors_per_second"] / figures["per_second"] if figures["per_second"] else 0.0
    failing = f", {errors:.0%} of requests get 5xx" if errors else ""
    return f"{success} {ago(now - hop['last_success'])} ago{failing}"


def _joined(hops: Iterable[Json]) -> list[Json]:
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for hop in hops:
        groups.setdefault((hop["gateway"], hop["kind"], hop["backend"], hop["port"]), []).append(hop)
    joined = [_sum_protocols(group) for group in groups.values()]
    return sorted(joined, key=lambda hop: (hop["health"] not in BAD, -hop["figures"]["per_second"], hop["backend"]))


def _sum_protocols(hops: list[Json]) -> Json:
    """Sums the protocols of a hop. Latency is that of the protocol with the most requests."""
    most = max(hops, key=lambda hop: hop["figures"]["per_second"])
    worst = next((hop for hop in hops if hop["health"] in BAD), most)
    figures = {name: sum(hop["figures"][name] for hop in hops) for name in ("per_second", "errors_per_second", "active")}
    return {
        **worst,
        "figures": {**most["figures"], **figures},
        "handshakes": sum(hop["handshakes"] for hop in hops),
        "last_success": max(hop["last_success"] for hop in hops),
    }


def _errors(entry: Json) -> float:
    return float(entry["figures"]["errors_per_second"])


def _figures(figures: Json) -> tuple[str, ...]:
    rate, errors = figures["per_second"], figures["errors_per_second"]
    share = f"{errors / rate:.1%}" if rate else "-"
    return (f"{rate:,.1f}", share, _latency(figures["p50"]), _latency(figures["p99"]), f"{figures['active']:,}")


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"


def text(report: Json, now: float, width: int = 0, height: int = 0) -> str:
    """Returns the tables: complete, or cut to the size of the terminal, with its colours."""
    tables = (("ROUTE", (), route_lines(report)), ("BACKEND", ("HANDSHAKES", "STATE"), backend_lines(report, now)))
    room = max(3, (height - 8) // 2) if height else None
    return "\n\n".join("\n".join(_table(title, more, lines, width, room)) for title, more, lines in tables)


def _table(title: str, more: tuple[str, ...], lines: list[TableLine], width: int, room: int | None) -> Iterator[str]:
    shown = lines[:room]
    rows = [(title, *FIGURES, *more), *((_name(line, width), *line.figures, *line.more) for line in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, line in zip(rows, (None, *shown), strict=True):
        cells = [
            cell.rjust(width) if 0 < n <= len(FIGURES) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text = "  ".join(cells).rstrip()
        yield click.style(text[:width], bold=line is None, fg="red" if line and line.bad else None) if width else text
    if len(lines) > len(shown):
        yield f"and {len(lines) - len(shown)} more"
    if not lines:
        yield "none yet"


def _name(line: TableLine, width: int) -> str:
    """Returns the name, cut if necessary: it shares the rest of the line with STATE."""
    most = max(16, (width - OTHERS) // (2 if line.more else 1)) if width else len(line.name)
    return line.name if len(line.name) <= most else f"{line.name[: most - 1]}…"
