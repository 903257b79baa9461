"""Runs `python -m bench.control --sizes 100,1000,5000`: Lasthop's controller beside Envoy Gateway's. Needs root and Go."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from bench import machine
from bench.control import envoy_gateway
from bench.control.ground import kept
from bench.rows import Row, growth, verdict, write
from bench.table import show
from conformance import build, sandbox
from conformance.preflight import Missing


@click.command("bench.control")
@click.option(
    "--sizes",
    default="100,1000,5000",
    show_default=True,
    help="Numbers of policies, each on a cluster of its own; empty: none.",
)
@click.option(
    "--largest",
    type=click.IntRange(1),
    help="One more size, of Lasthop alone: only a start and policy edits, for their growth.",
)
@click.option("--edits", default=10, show_default=True, type=click.IntRange(1), help="Of each kind, of each system.")
@click.option(
    "--peer-edits",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Policy edits of Envoy Gateway, which takes 15 s for each.",
)
@click.option(
    "--gateways", default="20x500", show_default=True, help="So many Gateways with so many policies each; empty: none."
)
@click.option("--peer/--no-peer", default=True, show_default=True, help="Whether Envoy Gateway takes part.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON instead of a table.")
def command(sizes: str, largest: int | None, edits: int, peer_edits: int, gateways: str, peer: bool, as_json: bool) -> None:
    """Lasthop's controller and Envoy Gateway's on a real API server, on the same objects and edits, in turn.

    The exit status is 1 if a figure misses its goal (bench/goals.py). Rows go to bench/out, for the report."""
    build.build()
    if peer and sizes:
        envoy_gateway.build()
    common = {"edits": edits, "peer_edits": peer_edits, "peer": peer, "growth": False}
    orders = [("scenario", common | {"size": int(size)}) for size in sizes.split(",") if size]
    if largest:
        orders.append(("scenario", common | {"size": largest, "peer": False, "growth": True}))
    if gateways:
        count, _, policies = gateways.partition("x")
        orders.append(("gateways", {"gateways": int(count), "policies": int(policies)}))
    rows: list[Row] = []
    failed = 0
    for module, arguments in orders:
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            failed |= sandbox.run(f"bench.control.{module}:scenario", arguments | {"home": home, "cluster": {"node": False}})
            measured, others = kept(Path(home))
        rows += measured
        # A file for each, so that one size can be measured again without the others.
        write(f"control-{arguments.get('size', 'gateways')}", machine.run("control", others), measured)
    if as_json:
        click.echo(json.dumps([row.__dict__ for row in [*rows, *growth(rows)]], indent=1))
    else:
        show([*rows, *growth(rows)])
    sys.exit(failed or verdict(rows))


if __name__ == "__main__":
    try:
        command(standalone_mode=False)
    except (click.ClickException, Missing) as error:
        sys.exit(f"bench.control: {error}")
