"""The tables of `lasthop top`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import click

from lasthop.base.api.documents import Json
from lasthop.base.text.printable import printable
from lasthop.cli.render.audit_observed import ago

FIGURES: Final = ("REQ/S", "ERRORS", "P50", "P99", "ACTIVE")
BAD: Final = ("failing", "partly failing")


class TableLine(NamedTuple):
    name: str
    figures: tuple[str, ...]
    more: tuple[str, ...] = ()
    bad: bool = False


def route_lines(report: Json) -> list[TableLine]:
    return [
        TableLine(printable(each["route"]), _figures(each["figures"]), bad=_errors(each) > 0)
        for each in _busiest(report["routes"])
    ]


def backend_lines(report: Json, now: float) -> list[TableLine]:
    """Returns one for each Gateway and port: protocols that differ only in who asks are one backend to a reader."""
    return [_backend(each, now) for each in _joined(report["hops"])]


def _backend(each: Json, now: float) -> TableLine:
    kind = "" if each["kind"] == "Service" else f"{each['kind']} "
    bad = each["health"] in BAD
    words = "; ".join(failure["words"] for failure in each["failures"])
    state = f"{each['health']}: {words}" if bad else _connected(each, now)
    name = f"{each['gateway']} -> {kind}{each['backend']}:{each['port']}"
    return TableLine(printable(name), _figures(each["figures"]), (f"{each['handshakes']:,}", printable(state)), bad)


def _connected(each: Json, now: float) -> str:
    """Returns what is known of a backend that connections succeed to. That, and how requests are answered, are two facts."""
    if not each["last_success"]:
        return str(each["health"])
    what = "handshake" if each["handshakes"] else "connected"
    figures = each["figures"]
    errors = figures["errors_per_second"] / figures["per_second"] if figures["per_second"] else 0.0
    failing = f", {errors:.0%} of requests get 5xx" if errors else ""
    return f"{what} {ago(now - each['last_success'])} ago{failing}"


def _joined(hops: Iterable[Json]) -> list[Json]:
    found: dict[tuple[Any, ...], list[Json]] = {}
    for hop in hops:
        found.setdefault((hop["gateway"], hop["kind"], hop["backend"], hop["port"]), []).append(hop)
    joined = [_one(several) for several in found.values()]
    return sorted(joined, key=lambda hop: (hop["health"] not in BAD, -hop["figures"]["per_second"], hop["backend"]))


def _one(several: list[Json]) -> Json:
    """Sums the protocols of a hop. The figures of latency are those of the protocol that has most requests."""
    most = max(several, key=lambda hop: hop["figures"]["per_second"])
    worst = next((hop for hop in several if hop["health"] in BAD), most)
    figures = {name: sum(hop["figures"][name] for hop in several) for name in ("per_second", "errors_per_second", "active")}
    return {
        **worst,
        "figures": {**most["figures"], **figures},
        "handshakes": sum(hop["handshakes"] for hop in several),
        "last_success": max(hop["last_success"] for hop in several),
    }


def _busiest(routes: Iterable[Json]) -> list[Json]:
    return sorted(routes, key=lambda each: (-_errors(each), -each["figures"]["per_second"], each["route"]))


def _errors(each: Json) -> float:
    return float(each["figures"]["errors_per_second"])


def _figures(figures: Json) -> tuple[str, ...]:
    rate, errors = figures["per_second"], figures["errors_per_second"]
    share = f"{errors / rate:.1%}" if rate else "-"
    return (f"{rate:,.1f}", share, _latency(figures["p50"]), _latency(figures["p99"]), f"{figures['active']:,}")


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"


# --- as text, and on a terminal --------------------------------------------------------------------------------------


class TopTable(NamedTuple):
    title: str
    more: tuple[str, ...]
    lines: list[TableLine]


def _tables(report: Json, now: float) -> tuple[TopTable, TopTable]:
    return (
        TopTable("ROUTE", (), route_lines(report)),
        TopTable("BACKEND", ("HANDSHAKES", "STATE"), backend_lines(report, now)),
    )


def plain(report: Json, now: float) -> str:
    return "\n\n".join("\n".join(_text(each, each.lines)) for each in _tables(report, now))


def _text(table: TopTable, lines: Iterable[TableLine]) -> Iterator[str]:
    rows = [(table.title, *FIGURES, *table.more), *((line.name, *line.figures, *line.more) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if 0 < n <= len(FIGURES) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    if not table.lines:
        yield "none yet"


def drawn(report: Json, now: float, columns: int, height: int) -> list[str]:
    """Returns both tables as lines that fit on a screen."""
    room = max(3, (height - 6) // 2)
    first, second = (_drawn(each, columns, room) for each in _tables(report, now))
    return [*first, "", *second]


def _drawn(table: TopTable, columns: int, room: int) -> Iterator[str]:
    shown = table.lines[:room]
    headline, *rows = _text(table, [line._replace(name=_cut(line.name, columns // 2)) for line in shown])
    yield click.style(_cut(headline, columns), bold=True)
    for row, line in itertools.zip_longest(rows, shown):
        yield click.style(_cut(row, columns), fg="red" if line and line.bad else None)
    if len(table.lines) > room:
        yield f"and {len(table.lines) - room} more"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
