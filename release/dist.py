"""Builds the wheel and the sdist twice, and compares the bytes: `make dist`.

Each build works on a copy of the tracked files, in a separate folder, made with another umask. So the result depends only on
the commit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "dist"
SUMS = "SHA256SUMS"


def main() -> int:
    epoch = source_date_epoch(ROOT)
    with tempfile.TemporaryDirectory(prefix="lasthop-dist-") as scratch:
        first, second = (built(ROOT, Path(scratch) / name, epoch, umask) for name, umask in (("a", 0o022), ("b", 0o077)))
        differing = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
        if differing:
            print(f"Two builds of one commit differ: {', '.join(sorted(differing))}")
            return 1
    FOLDER.mkdir(exist_ok=True)
    for old in (*FOLDER.glob("*.whl"), *FOLDER.glob("*.tar.gz")):
        old.unlink()
    for name, content in first.items():
        (FOLDER / name).write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}  dist/{name}  ({len(content) / 1e6:.1f} MB)")
    write_sums(FOLDER)
    return 0


def source_date_epoch(root: Path) -> str:
    """Returns $SOURCE_DATE_EPOCH, or the time of the commit."""
    return os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct").strip()


def built(root: Path, scratch: Path, epoch: str, umask: int = 0o022) -> dict[str, bytes]:
    """Returns the wheel and the sdist by their names."""
    tree = scratch / "tree"
    for name in tracked(root):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, tree / name)
    return build(tree, scratch / "results", epoch, umask)


def build(tree: Path, results: Path, epoch: str, umask: int = 0o022) -> dict[str, bytes]:
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(results)],
        cwd=tree,
        env=os.environ | {"SOURCE_DATE_EPOCH": epoch},
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ran.returncode:
        sys.exit(f"hatchling failed:\n{ran.stdout}")
    return {file.name: file.read_bytes() for file in sorted(results.iterdir())}


def tracked(root: Path) -> Iterator[str]:
    """Yields what git tracks and is there."""
    return (name for name in _git(root, "ls-files", "-z").split("\0") if name and (root / name).is_file())


def write_sums(folder: Path) -> None:
    """Writes what `sha256sum --check` reads, for all files of the folder."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != SUMS)
    (folder / SUMS).write_text("".join(f"{_sum(file)}  {file.name}\n" for file in files))


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _git(root: Path, *command: str) -> str:
    return subprocess.run(["git", "-C", str(root), *command], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
