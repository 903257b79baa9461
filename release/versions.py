"""Provides versions of Lasthop for upgrades: any commit, as its wheel in its own virtual environment, with its chart."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from release.dist import ROOT, build
from release.installed import installed
from release.places import upgrades


class Version(NamedTuple):
    commit: str
    folder: Path

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def program(self) -> Path:
        return self.venv / "bin" / "lasthop"

    @property
    def wheel(self) -> Path:
        (file,) = self.folder.glob("*.whl")
        return file

    @property
    def chart(self) -> Path:
        return self.folder / "chart"


def version(reference: str) -> Version:
    """Returns a commit, tag or branch as it is installed: once, and kept in the cache."""
    commit = _git("rev-parse", "--verify", f"{reference}^{{commit}}")
    cached = Version(commit, upgrades() / commit)
    if not (cached.folder / "complete").exists():
        print(f"Installing {reference} ({commit[:12]}) into {cached.folder}", flush=True)
        _install(cached)
    return cached


def _install(wanted: Version) -> None:
    with tempfile.TemporaryDirectory(prefix="lasthop-version-") as scratch:
        tree, results = Path(scratch) / "tree", Path(scratch) / "results"
        tree.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", wanted.commit], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "--extract", f"--directory={tree}"], input=archive, check=True)
        build(tree, results, _git("log", "-1", "--format=%ct", wanted.commit))
        (wheel,) = results.glob("*.whl")
        installed(Path(f"{wheel}{_extra(wheel)}"), wanted.venv)
        shutil.copy(wheel, wanted.folder)
        subprocess.run(["cp", "--recursive", tree / "deploy" / "chart", wanted.chart], check=True)
    (wanted.folder / "complete").touch()


def _extra(wheel: Path) -> str:
    """Returns the extra that versions which still have it need in a cluster."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return "[kubernetes]" if b"\nProvides-Extra: kubernetes\n" in archive.read(metadata) else ""


def _git(*command: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *command], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
