"""Runs `python -m bench --sizes 100,5000 --edits 20 --json FILE`, a part of `make bench`."""

from __future__ import annotations

import functools
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from bench import machine
from bench.measure import Result, measure
from bench.probe import NotEffective
from bench.report import as_json, rows, show
from bench.rows import growth, verdict, write
from bench.table import judgement, number


def interrupted(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C: everything that was started is ended on the way out."""
    raise KeyboardInterrupt


@click.command("bench")
@click.option("--sizes", default="100,5000", show_default=True, help="Numbers of policies.")
@click.option("--edits", default=20, show_default=True, type=click.IntRange(1), help="Edits of each kind, at each size.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Everything that was seen; - is standard output.")
def command(sizes: str, edits: int, json_file: str | None) -> None:
    """Measures the time from a saved edit until traffic shows it, and its cost, at several sizes (see bench/README.md)."""
    progress = Console(stderr=True, highlight=False)
    results: list[Result] = []
    for size in [int(count) for count in sizes.split(",")]:
        # Short, because unix sockets live in it.
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            results.append(measure(size, edits, Path(home), functools.partial(progress.print, f"{size:,}:")))
    console = Console(highlight=False)
    console.width = max(console.width, 132)  # a table that is wrapped by the terminal is better than one that is cut
    show(console, results)
    if json_file:
        with click.open_file(json_file, "w") as file:
            json.dump(as_json(results), file, indent=1)
    judged = rows(results)
    write("files", machine.run("files", max(result.others for result in results)), judged)
    for row in [*judged, *growth(judged)]:
        if row.met is not None:
            console.print(f"{row.what}, N={row.n:,}: {number(row.ours)} {row.unit}; goal {row.goal}: {judgement(row.met)}")
    sys.exit(verdict(judged))


if __name__ == "__main__":
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, interrupted)
    try:
        command(standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.Abort:
        sys.exit(130)
    except (click.ClickException, NotEffective, RuntimeError) as error:
        sys.exit(f"bench: {error}")
