"""Measures the disk space of an installed Lasthop, and with `--tests` the duration of `make test`: `python -m bench.whole`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import click

from bench import machine
from bench.others import Others
from bench.rows import Row, judged, verdict, write
from bench.table import show
from release.dist import FOLDER, ROOT, built, source_date_epoch
from release.installed import installed, size
from release.places import differing, root_folder


def installing() -> Row:
    """The wheel and all that it needs, with byte code, in an environment that has nothing else."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        files = built(ROOT, home / "build", source_date_epoch(ROOT))
        (name,) = (name for name in files if name.endswith(".whl"))
        (home / name).write_bytes(files[name])
        installed(home / name, home / "venv")
        return judged("whole", "pip install", 0, size(home / "venv") / 1e6, "MB")


def image() -> Row:
    """The archive of `make image`, which is made unless there is one of this source."""
    archive = FOLDER / f"lasthop-{version('lasthop')}.oci.tar"
    if not (archive.exists() and root_folder().exists()) or differing(ROOT / "src", root_folder()):
        subprocess.run([sys.executable, "-m", "release.image"], cwd=ROOT, check=True, stdout=sys.stderr)
    return judged("whole", "image", 0, archive.stat().st_size / 1e6, "MB")


def testing() -> Row:
    began = time.monotonic()
    subprocess.run(["make", "test"], cwd=ROOT, check=True, stdout=sys.stderr)
    return judged("whole", "make test", 0, time.monotonic() - began, "s")


@click.command("bench.whole")
@click.option("--image/--no-image", "with_image", default=True, show_default=True, help="Whether to measure the image.")
@click.option("--tests", is_flag=True, help="Run `make test`, too.")
def command(with_image: bool, tests: bool) -> None:
    """What installing Lasthop takes of a disk, and `make test` of time. The exit status is 1 if a figure misses its goal."""
    others = Others()
    rows: list[Row] = []
    failed = 0
    for measure in (installing, *([image] if with_image else ()), *([testing] if tests else ())):
        try:
            rows.append(measure())
        except subprocess.CalledProcessError as error:
            failed = 1
            click.echo(f"no figure: {error}", err=True)
    write("whole", machine.run("whole", others.cores()), rows)
    show(rows)
    sys.exit(failed or verdict(rows))


if __name__ == "__main__":
    command()
