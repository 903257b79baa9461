"""Runs every part of `make bench` in turn, then the report. `make bench-quick` runs the same parts with few objects."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

import click

from bench.rows import OUT


@dataclass(frozen=True)
class Part:
    module: str
    full: tuple[str, ...]
    quick: tuple[str, ...]


PARTS = (
    Part("bench.commands", (), ("--times", "1")),
    Part("bench.data", ("--quick", "--rows", "1k-h1,1k-h2,1m,connect"), ("--quick", "--rows", "1k-h1")),
    Part("bench.data.counted", (), ("--rows", "1k-h1,routes")),
    Part("bench.storm", ("--seconds", "30"), ("--policies", "100", "--seconds", "5")),
    Part("bench", ("--sizes", "100,5000", "--edits", "6"), ("--sizes", "20", "--edits", "2")),
    Part("bench.folder_start", ("--policies", "5000"), ("--policies", "100")),
    Part(
        "bench.control",
        ("--sizes", "100,1000,5000", "--largest", "10000", "--peer-edits", "1", "--gateways", "10x500"),
        ("--sizes", "20", "--largest", "50", "--edits", "2", "--peer-edits", "1", "--gateways", "3x5"),
    ),
    Part("bench.whole", (), ("--no-image",)),
)


@click.command("bench.all")
@click.option("--quick", is_flag=True, help="Small sizes and few edits: whether everything still runs, in 5 minutes.")
def command(quick: bool) -> None:
    """Runs every part of the bench, then writes the report. The exit status is 1 if any missed a goal or failed."""
    shutil.rmtree(OUT, ignore_errors=True)  # figures of other sizes and other code
    failed = []
    for part in PARTS:
        arguments = part.quick if quick else part.full
        began = time.monotonic()
        click.echo(f"--- python -m {part.module} {' '.join(arguments)}", err=True)
        status = subprocess.run([sys.executable, "-m", part.module, *arguments]).returncode
        click.echo(f"--- {part.module}: status {status} after {time.monotonic() - began:.0f} s", err=True)
        failed += [part.module] if status else []
    if not quick:  # the report is about the sizes that the goals are about
        subprocess.run([sys.executable, "-m", "bench.results"])
    if failed:
        raise click.ClickException(f"missed goals or failed: {', '.join(failed)}")


if __name__ == "__main__":
    command()
