"""Measures the control plane's share of a start in files mode, in CPU seconds, without Envoy: `python -m bench.folder_start`.

It reads, admits and applies the folder, computes all outputs for Envoy and users, and saves the state: once with an empty
state directory, and again, in a new process, with an unchanged folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from bench import machine
from bench.folder import Folder
from bench.others import Others
from bench.processes import environment, resident
from bench.rows import Row, judged, verdict, write
from bench.table import show
from examples.quickstart.certificates import Issued
from lasthop.base import gc_pause
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.engine.engine import Engine


def start(folder: Path, state: Path) -> dict[str, float]:
    """Returns the CPU seconds of each step, in the order in which `lasthop run` does them, and the memory in MiB."""
    steps, before = {}, time.process_time()

    def done(step: str) -> None:
        nonlocal before
        now = time.process_time()
        steps[step], before = now - before, now

    with gc_pause.frozen():
        loader = Loader(folder, StateDirectory(state))
        batch = loader.apply(loader.look())
        assert batch is not None
        done("read and admit")
        engine = Engine(now=time.time())
        engine.apply(batch.changes)
        engine.settle()
        done("graph")
    loader.save()
    done("save")
    return {**steps, "own share": sum(steps.values()), "MiB": resident(os.getpid())}


def rows(name: str, policies: int, steps: dict[str, float]) -> list[Row]:
    mebibytes = judged("folder", f"{name}: RSS", policies, steps.pop("MiB"), "MiB")
    return [*(judged("folder", f"{name}: {step}", policies, value, "s") for step, value in steps.items()), mebibytes]


@click.command("bench.folder_start")
@click.option("--policies", default=5000, show_default=True, type=click.IntRange(10))
@click.option("--once", nargs=2, type=click.Path(path_type=Path), hidden=True)
def command(policies: int, once: tuple[Path, Path] | None) -> None:
    """CPU seconds of a start on a folder, without Envoy's. The exit status is 1 if a figure misses its goal."""
    if once:
        click.echo(json.dumps(start(*once)))
        return
    others, measured = Others(), []
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        folder, state = home / "folder", home / "state"
        Folder(folder, policies, 18080, 18443, Issued("bench CA").pem.decode())
        once_more = [sys.executable, "-m", "bench.folder_start", "--once", str(folder), str(state)]
        for name in ("first start", "unchanged folder"):
            output = subprocess.run(once_more, env=environment(home), check=True, stdout=subprocess.PIPE).stdout
            measured += rows(name, policies, json.loads(output))
    write("folder", machine.run("folder", others.cores()), measured)
    show(measured)
    sys.exit(verdict(measured))


if __name__ == "__main__":
    command()
