"""Measures the proxy's CPU per request: `python -m bench.data`, with Lasthop's configuration and beside others.

Every proxy has one worker on a core of its own, serves the same hosts from the same backends, and verifies their
certificates by CA and name. They take turns in short rounds, in random order, so that the load of other processes affects all.
Each round gives a ratio; the result is the median with its 95 % confidence interval. Each round has new processes: ratios
differ from start to start by some percent, which rounds of the same processes would not show.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from bench import machine
from bench.data.install import installed
from bench.data.places import OTHER_CORE, Places, pinned, places
from bench.data.report import Figure, figure
from bench.data.rows import LASTHOP, ROWS, Row, arguments
from bench.data.sides import SHARED, SIDES, Plan, Side, started
from bench.others import Others
from bench.rows import write

Costs = dict[str, list[float]]
"""Seconds of CPU for a request, by side and round."""
WARM_UP = 0.6
"""Warm-up in seconds before a round, to open connections to the backend and fill caches. After 0.2 s, requests to 1,000 routes
of a new process still cost a tenth more than later."""


class Failed(RuntimeError):
    """A side does not serve the expected response."""


def cost(places: Places, row: Row, name: str, side: Side, length: float) -> float:
    """Has a side serve a row for a while; returns seconds of CPU for a request."""
    command = [*pinned(OTHER_CORE), str(places.traffic), "load", *arguments(row, name, side.ports)]
    command += ["-connections", str(row.connections), "-pids", str(side.pid)]
    command += ["-warm", f"{length / 2}s", "-length", f"{length}s"]
    seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    if seen["failed"] or not seen["answers"]:
        raise Failed(f"{row.name}, {name}: {seen['answers']} answers, {seen['failed']} failures, {seen['reason']!r}")
    spent: float = seen["cpu"] / seen["answers"]
    return spent


def measure(
    places: Places, rows: dict[str, Row], chosen: dict[str, list[str]], plans: dict[str, Plan], rounds: int, length: float
) -> dict[str, Costs]:
    """Has all sides of all rows take turns; returns the costs by row."""
    costs: dict[str, Costs] = {name: {side: [] for side in sides} for name, sides in chosen.items()}
    for number in range(rounds):
        click.echo(f"round {number + 1} of {rounds}", err=True)
        shuffled = random.Random(number)
        with contextlib.ExitStack() as stack:
            order = shuffled.sample(list(plans), len(plans))
            running = {name: stack.enter_context(started(plans[name], places)) for name in order}
            for name, row in rows.items():
                sides = shuffled.sample(chosen[name], len(chosen[name]))
                for side in sides:
                    cost(places, row, side, running[SHARED.get(side, side)], WARM_UP)
                for side in sides:
                    costs[name][side].append(cost(places, row, side, running[SHARED.get(side, side)], length))
    return costs


def interrupted(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C: everything that was started is ended on the way out."""
    raise KeyboardInterrupt


@click.command("data")
@click.option("--rows", "wanted", default=",".join(ROWS), show_default=True, help="Names, separated by commas.")
@click.option("--sides", "against", default="", help="Others to compare with, by a part of their names; all by default.")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(6), help="Of each side, for each row.")
@click.option("--length", default=0.5, show_default=True, help="Seconds of a round, after half as many that are not counted.")
@click.option("--quick", is_flag=True, help="6 rounds of 0.2 s: shows large differences.")
def command(wanted: str, against: str, rounds: int, length: float, quick: bool) -> None:
    """CPU of the proxy for a request, beside others that do the same work (see bench/README.md). It has no goals: instructions
    have (`bench.data.counted`)."""
    if unknown := [name for name in wanted.split(",") if name not in ROWS]:
        raise click.BadParameter(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}", param_hint="--rows")
    if (os.cpu_count() or 1) < 2:
        raise click.ClickException("it needs two cores: one for the proxy, one for both ends")
    if quick:
        rounds, length = 6, 0.2
    rows = {name: ROWS[name] for name in wanted.split(",")}
    chosen = {name: [LASTHOP, *(other for other in row.others if _named(other, against))] for name, row in rows.items()}
    needed = {SHARED.get(side, side) for sides in chosen.values() for side in sides}
    traffic = installed(needed)
    figures: list[Figure] = []
    others = Others()
    with contextlib.ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="bench-data-", dir="/tmp"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        shared = stack.enter_context(places(home, traffic))
        routes = max(row.routes for row in ROWS.values())
        plans = {name: SIDES[name](shared, routes) for name in sorted(needed)}
        costs = measure(shared, rows, chosen, plans, rounds, length)
    for name, row in rows.items():
        click.echo(row.name)
        for other in chosen[name][1:]:
            figures.append(figure(row, other, costs[name][LASTHOP], costs[name][other]))
            click.echo(f"  {figures[-1].line()}")
    path = write("data-cpu", machine.run("data", others.cores()), [measured.shown() for measured in figures])
    click.echo(f"written to {path}")


def _named(other: str, against: str) -> bool:
    return not against or any(part.strip().lower() in other.lower() for part in against.split(","))


if __name__ == "__main__":
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, interrupted)
    try:
        command(standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except (click.ClickException, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"bench.data: {error.format_message() if isinstance(error, click.ClickException) else error}")
