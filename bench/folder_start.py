"""`python -m bench.folder_start`: the control plane's own share of a start in files mode, in CPU seconds, without Envoy.

Reading and admitting the folder, applying it, working out everything that Envoy and people are told, and saving the state:
once with an empty state directory, and once more, in a new process, with an unchanged folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from bench.folder import Folder
from bench.processes import resident
from examples.quickstart.certificates import Issued
from lasthop import garbage
from lasthop.engine import Engine
from lasthop.sources.files.loader import Loader
from lasthop.sources.files.state import StateDirectory


def start(folder: Path, state: Path) -> dict[str, float]:
    """Returns the CPU seconds of each step, in the order in which `lasthop run` does them, and the memory in MiB."""
    steps, before = {}, time.process_time()

    def done(step: str) -> None:
        nonlocal before
        now = time.process_time()
        steps[step], before = now - before, now

    with garbage.kept():
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
    return {**steps, "all": sum(steps.values()), "MiB": resident(os.getpid())}


@click.command("bench.folder_start")
@click.option("--policies", default=1000, show_default=True, type=click.IntRange(10))
@click.option("--once", nargs=2, type=click.Path(path_type=Path), hidden=True)
def command(policies: int, once: tuple[Path, Path] | None) -> None:
    if once:
        click.echo("  ".join(f"{step} {value:.2f}" for step, value in start(*once).items()))
        return
    with tempfile.TemporaryDirectory() as directory:
        folder, state = Path(directory) / "folder", Path(directory) / "state"
        Folder(folder, policies, 18080, 18443, Issued("bench CA").pem.decode())
        for name in ("first start", "unchanged folder"):
            click.echo(f"{name:18}", nl=False)
            subprocess.run([sys.executable, "-m", "bench.folder_start", "--once", folder, state], check=True)


if __name__ == "__main__":
    command()
