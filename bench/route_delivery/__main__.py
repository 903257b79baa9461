"""Edits one host's route among many on one port, delivered by RDS, VHDS and SRDS: `python -m bench.route_delivery`.

    probe ──HTTP──> Envoy (one for each way) ──TLS──> backend
                      ^ delta ADS
    the virtual hosts that Lasthop emits

All run at the same time and take turns. An edit lasts from before its encoding until a response shows it. `python -m bench`
measures Lasthop's work before that, from the saved file on. Then it splits the cost of an RDS edit into its parts, and
compares the responses of clients by delivery.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path

import click

from bench.others import Others
from bench.processes import backend
from bench.route_delivery.checks import check
from bench.route_delivery.emitted import emitted
from bench.route_delivery.measure import Row, measure
from examples.quickstart.certificates import Issued


@click.command("bench.route_delivery")
@click.option("--sizes", default="100,1000,5000", show_default=True, help="Hosts on the port.")
@click.option("--edits", default=15, show_default=True, type=click.IntRange(1), help="Of each kind.")
@click.option("--json", "as_json", is_flag=True)
def command(sizes: str, edits: int, as_json: bool) -> None:
    """Edits one host's route among many on one port, delivered by RDS, VHDS and SRDS."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp")))
        ca = Issued("bench CA")
        Issued("*.bench.example", ca).write(home, "backend")
        _, (port, _) = stack.enter_context(backend(home / "backend.crt", home / "backend.key"))
        pieces = emitted(home, port, ca.pem.decode())
        others = Others()
        rows = [row for size in sizes.split(",") for row in measure(home, pieces, int(size), edits)]
        cores, answers = others.cores(), check(home, pieces)
    if as_json:
        click.echo(json.dumps({"others": cores, "edits": [dataclasses.asdict(row) for row in rows], "answers": answers}))
        return
    click.echo(
        f"a virtual host: {pieces.pattern.ByteSize()} bytes, including its retry policy of "
        f"{pieces.pattern.retry_policy.ByteSize()}"
    )
    click.echo(f"{'hosts':>6}  {'way':52}{'bytes':>10}{'effective':>11}{'slowest':>9}{'CPU, ms':>9}{'KiB/host':>10}")
    for row in rows:
        click.echo(_line(row))
    click.echo(f"\nother processes took {cores:.2f} cores\n")
    for question, by_way in answers.items():
        click.echo(f"{question:36}" + "".join(f"{way} {answer:16}" for way, answer in by_way.items()))


def _line(row: Row) -> str:
    times = "".join(
        f"{'' if value is None else f'{value:.1f}':>{width}}" for value, width in ((row.effective_ms, 11), (row.slowest_ms, 9))
    )
    memory = "" if row.kib_per_host is None else f"{row.kib_per_host:.1f}"
    return f"{row.hosts:6,}  {row.way:52}{row.sent:10,.0f}{times}{row.cpu_ms:9.1f}{memory:>10}"


if __name__ == "__main__":
    command()
