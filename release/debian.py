"""Makes root file systems from Debian's packages with mmdebstrap, for `make image`, `make service` and `make bare`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from release.places import cache
from tools import programs

SUITE: Final = "bookworm"
SOURCES: Final = Path("/etc/apt/sources.list.d/debian.sources")


def unready(target: str) -> str:
    """Installs the programs of a target. Returns what keeps this machine from running it, or nothing."""
    if os.geteuid() != 0:
        return f"`make {target}` needs root: it makes a root file system."
    return "\n".join(program.absence() for program in programs.install(target))


def bootstrap(result: Path, *options: str) -> None:
    """Writes the smallest Debian to a folder or an archive, from the packages that this machine's apt trusts."""
    sources = [str(SOURCES)] if SOURCES.exists() else []
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", *options, SUITE, str(result), *sources], check=True)


def base(name: str, packages: Sequence[str]) -> Path:
    """Makes a root file system with these packages, once."""
    folder, wanted = cache() / name, " ".join([SUITE, *packages])
    made = folder / "packages"
    if not made.exists() or made.read_text() != wanted:
        print(f"Making a machine from Debian's packages ({SUITE})", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        bootstrap(folder / "root", f"--include={','.join(packages)}")
        made.write_text(wanted)
    return folder / "root"


def copied(name: str, packages: Sequence[str], root: Path) -> None:
    """Copies it to a folder that does not exist yet."""
    subprocess.run(["cp", "--archive", "--reflink=auto", base(name, packages), root], check=True)
