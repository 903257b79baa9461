"""Renders the figures as a table and as JSON."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import Result
from bench.rows import Row, judged


def spread(seconds: list[float]) -> dict[str, float]:
    """Milliseconds; the 90th percentile is a value that was seen."""
    ordered = sorted(1000 * value for value in seconds)
    p90 = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return {"median": statistics.median(ordered), "p90": p90, "max": ordered[-1], "count": len(ordered)}


def as_json(results: list[Result]) -> dict[str, Any]:
    """Everything that was seen, in seconds, bytes and MiB, and the medians that the table has."""
    return {
        "results": [dataclasses.asdict(result) for result in results],
        "effective_ms": {r.size: {name: spread(seen) for name, seen in r.effective.items()} for r in results},
        "rows": [dataclasses.asdict(row) for row in rows(results)],
    }


def rows(results: list[Result]) -> list[Row]:
    """The figures of the report, with the result of their goals."""
    return [row for result in results for row in _rows(result)]


def _rows(result: Result) -> Iterator[Row]:
    row = functools.partial(judged, "files", n=result.size)
    for name, seen in result.effective.items():
        yield row(f"{name}: effective", ours=spread(seen)["median"], unit="ms")
    for name, cost in result.costs.items():
        yield row(f"{name}: controller CPU", ours=1000 * cost.lasthop_cpu, unit="ms")
        yield row(f"{name}: xDS bytes", ours=cost.sent, unit="B")
    yield row("cold start: ready", ours=result.cold.ready, unit="s")
    yield row("restart: ready", ours=result.restart.ready, unit="s")
    yield row(
        "shared CA: all confirmed", ours=statistics.median(rotation.confirmed for rotation in result.rotations), unit="s"
    )
    yield row("Lasthop RSS", ours=result.lasthop_mib, unit="MiB")
    yield row("Envoy RSS", ours=result.envoy_mib, unit="MiB")
    yield row("idle CPU", ours=100 * result.idle_cpu, unit="% of a core")
    yield row("failed requests", ours=sum(result.failed.values()), unit="")


def show(console: Console, results: list[Result]) -> None:
    console.print(_times(results))
    console.print(_costs(results))
    console.print(_rest(results))
    for result in results:
        for what, count in result.failed.items():
            console.print(
                f"[bold red]{result.size:,} policies: {count} requests failed that no edit should disturb: {what}[/]"
            )
        for line in result.failures:
            console.print(f"    {line}", markup=False, soft_wrap=True)


def _times(results: list[Result]) -> Table:
    table = Table(title="From save to traffic: median / p90 / max, ms", title_justify="left", title_style="bold")
    table.add_column("edit", no_wrap=True)
    _size_columns(table, results)

    def row(name: str, seen: list[list[float]]) -> None:
        spreads = [spread(times) if times else None for times in seen]
        cells = ["{median:.1f} / {p90:.1f} / {max:.1f}".format(**measured) if measured else "-" for measured in spreads]
        table.add_row(name, *cells, *_ratio([measured["median"] if measured else 0.0 for measured in spreads]))

    for name in results[0].effective:
        row(name, [result.effective[name] for result in results])
    table.add_section()
    row(
        "policy hostname, 20 ms after the shared CA",
        [[rotation.urgent[0] for rotation in result.rotations] for result in results],
    )
    later = [[ms for rotation in result.rotations for ms in rotation.urgent[1:]] for result in results]
    row("policy hostname, later while it rotates", later)
    return table


def _costs(results: list[Result]) -> Table:
    table = Table(title="What an edit costs", title_justify="left", title_style="bold")
    table.add_column("edit", no_wrap=True)
    for what in ("Lasthop CPU, ms", "Envoy main CPU, ms", "xDS bytes"):
        for result in results:
            table.add_column(f"{what}: {result.size:,}", justify="right")
    for name in results[0].costs:
        costs = [result.costs[name] for result in results]
        cells = [f"{1000 * cost.lasthop_cpu:.1f}" for cost in costs]
        cells += [f"{1000 * cost.envoy_cpu:.1f}" for cost in costs]
        cells += [f"{cost.sent:,.0f}" for cost in costs]
        table.add_row(name, *cells)
    return table


def _rest(results: list[Result]) -> Table:
    table = Table(title="Starting, rotating, resting", title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    _size_columns(table, results)

    def row(name: str, value: Callable[[Result], float], shown: str) -> None:
        values = [value(result) for result in results]
        table.add_row(name, *(shown.format(number) for number in values), *_ratio(values))

    row("cold start: ready, s", lambda r: r.cold.ready, "{:.2f}")
    row("cold start: first verified 200, s", lambda r: r.cold.first_200, "{:.2f}")
    row("restart, nothing changed: ready, s", lambda r: r.restart.ready, "{:.2f}")
    row("restart, nothing changed: first verified 200, s", lambda r: r.restart.first_200, "{:.2f}")
    table.add_section()
    row("shared CA rotated: sampled hosts effective, s", lambda r: statistics.median(x.sampled for x in r.rotations), "{:.2f}")
    row("shared CA rotated: all confirmed, s", lambda r: statistics.median(x.confirmed for x in r.rotations), "{:.2f}")
    table.add_section()
    row("Lasthop RSS, MiB", lambda r: r.lasthop_mib, "{:.0f}")
    row("Envoy RSS, MiB", lambda r: r.envoy_mib, "{:.0f}")
    row("Lasthop idle CPU, % of a core", lambda r: 100 * r.idle_cpu, "{:.1f}")
    row("probe round trip, ms", lambda r: 1000 * r.round_trip, "{:.2f}")
    row("failed requests", lambda r: sum(r.failed.values()), "{:.0f}")
    row("load of the machine before", lambda r: r.load, "{:.2f}")
    row("cores taken by other processes during the edits", lambda r: r.others, "{:.2f}")
    return table


def _size_columns(table: Table, results: list[Result]) -> None:
    for result in results:
        table.add_column(f"{result.size:,} policies", justify="right", no_wrap=True)
    if len(results) > 1:
        table.add_column("last : first", justify="right", no_wrap=True)


def _ratio(values: list[float]) -> list[str]:
    if len(values) < 2:
        return []
    return [f"{values[-1] / values[0]:.1f}" if values[0] > 0 else "-"]
