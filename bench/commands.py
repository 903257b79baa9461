"""Measures the CPU seconds of interactive commands: `python -m bench.commands`. It reports the median of several runs on 20
policies."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import click

from bench import machine
from bench.folder import Folder
from bench.others import Others
from bench.processes import Gateway, environment, free_port
from bench.rows import Row, judged, verdict, write
from bench.table import show
from examples.quickstart.certificates import Issued

POLICIES = 20
START_WITHIN = 60.0
COMPLETION = {"_LASTHOP_COMPLETE": "bash_complete", "COMP_WORDS": "lasthop ex", "COMP_CWORD": "1"}


def cpu(arguments: list[str], variables: Mapping[str, str]) -> float:
    """Returns the cost of one run. It ignores the exit status, because there are findings, and no backend answers the
    probe."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "lasthop.cli.main", *arguments], env=variables, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(home: Path, times: int) -> list[Row]:
    folder = Folder(home / "folder", POLICIES, free_port(), free_port(), Issued("bench CA").pem.decode())
    gateway = Gateway(folder.path, home)
    try:
        begun = time.monotonic()
        while not gateway.ready and time.monotonic() - begun < START_WITHIN:
            time.sleep(0.1)
        name, variables = folder.sets[0].name, environment(home)
        runs: dict[str, tuple[list[str], Mapping[str, str]]] = {
            "lasthop --help": (["--help"], variables),
            "completion": ([], variables | COMPLETION),
            "lasthop check": (["check", str(folder.path)], variables),
            "lasthop status": (["status", "--dir", str(folder.path)], variables),
            "lasthop explain": (["explain", "httproute", f"bench/{name}", "--dir", str(folder.path)], variables),
            "lasthop probe": (["probe", f"bench/{name}", "--dir", str(folder.path)], variables),
        }
        medians = {what: statistics.median(cpu(*run) for _ in range(times)) for what, run in runs.items()}
    finally:
        gateway.stop()
    return [judged("commands", what, POLICIES, seconds, "s") for what, seconds in medians.items()]


@click.command("bench.commands")
@click.option("--times", default=5, show_default=True, type=click.IntRange(1), help="Runs of each command.")
def command(times: int) -> None:
    """CPU seconds of commands. The exit status is 1 if a figure misses its goal."""
    os.chdir(Path(__file__).parent.parent)
    others = Others()
    with tempfile.TemporaryDirectory() as home:
        rows = measure(Path(home), times)
    write("commands", machine.run("commands", others.cores()), rows)
    show(rows)
    sys.exit(verdict(rows))


if __name__ == "__main__":
    command()
