"""Counts the instructions of a request, which a busy machine does not change: `python -m bench.data.counted`.

Each Envoy runs under valgrind (callgrind) and serves all rows. A row serves few requests, then many: the difference contains
no new connection and no handshake, unless each request has its own. It counts the instructions in user space of the thread
that handles requests. These figures have the goals of the data plane; CPU is shown beside them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from bench import machine
from bench.data.install import installed
from bench.data.places import Places, places
from bench.data.rows import COUNTED, LASTHOP, ROWS, Row, arguments
from bench.data.sides import SHARED, SIDES, Plan, started
from bench.instructions import control, dumped
from bench.others import Others
from bench.rows import Row as Figure
from bench.rows import judged, verdict, write
from bench.table import show
from lasthop.engine.outputs.envoy.access_log import SAMPLES_SHARE

VALGRIND = ("valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no")
CONNECTIONS = 4
SMALL = "1k-h1"
"""The row that has a goal of its own, whatever others take."""
PATIENCE = 300.0


def plan_of(name: str, shared: Places, routes: int, dumps: Path) -> Plan:
    """Returns the plan of a side, under callgrind. Of Lasthop no request is sampled."""
    plan = SIDES[name](shared, routes)
    if name == LASTHOP:
        config = json.loads(plan.config)
        config["layered_runtime"]["layers"][0]["static_layer"][SAMPLES_SHARE] = 0
        plan = plan._replace(config=json.dumps(config))
    counted = (*VALGRIND, f"--callgrind-out-file={dumps}/counted.%p")
    return plan._replace(command=lambda config: [*counted, *plan.command(config)])


def count(shared: Places, dumps: Path, plan: Plan, names: dict[str, Row]) -> dict[str, float]:
    """Returns the instructions of a request of each row, by one process."""
    with started(plan, shared) as side:

        def asked(row: Row, name: str, answers: int) -> tuple[int, int]:
            command = [str(shared.traffic), "load", *arguments(row, name, side.ports), "-connections", str(CONNECTIONS)]
            command += ["-answers", str(answers)]
            control(side.pid, "--zero")
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
            control(side.pid, "--dump")
            seen = json.loads(done.stdout)
            if seen["failed"]:
                raise RuntimeError(f"{row.name}, {name}: {seen['failed']} failures, {seen['reason']!r}")
            return dumped(side.pid, dumps), seen["answers"]

        control(side.pid, "--instr=on")
        instructions = {}
        for name, row in names.items():
            few = row.counted // 4
            asked(row, name, few)  # opens what stays open, and translates the code
            (least, fewer), (most, more) = asked(row, name, few), asked(row, name, row.counted)
            instructions[name] = (most - least) / (more - fewer)
        return instructions


def figures(rows: dict[str, Row], counts: dict[str, dict[str, float]]) -> Iterator[Figure]:
    """Yields a figure for each row and peer. `counts` are by side, then by row."""
    if SMALL in rows:
        yield judged("data", "1 KiB request", 1, counts[LASTHOP][SMALL], "instructions")
    for name, row in rows.items():
        for other in row.others:
            if other in counts:
                ours, peer = counts[LASTHOP][name], counts[other][name]
                yield judged("data", f"{row.name}: instructions", row.routes, ours, "instructions", peer, other)


@click.command("bench.data.counted")
@click.option("--rows", "wanted", default=",".join(ROWS), show_default=True, help="Which, separated by commas.")
def command(wanted: str) -> None:
    """Instructions of a request, beside others on the same Envoy. The exit status is 1 if a figure misses its goal."""
    if missing := [name for name in ("valgrind", "callgrind_control") if not shutil.which(name)]:
        sys.exit(f"{' and '.join(missing)} not found: install valgrind")
    rows, others = {name: ROWS[name] for name in wanted.split(",")}, Others()
    counts: dict[str, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="bench-counted-", dir="/tmp"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        shared = stack.enter_context(places(home, installed(())))
        for side in COUNTED:
            click.echo(side, err=True)
            own = {name: row for name, row in rows.items() if side == LASTHOP or side in row.others}
            plan = plan_of(SHARED.get(side, side), shared, max(row.routes for row in ROWS.values()), home)
            if own:
                counts[side] = count(shared, home, plan, own)
    figure_rows = list(figures(rows, counts))
    write("data-counted", machine.run("data", others.cores()), figure_rows)
    show(figure_rows)
    sys.exit(verdict(figure_rows))


if __name__ == "__main__":
    command()
