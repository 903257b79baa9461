"""Defines where `make image` and `make upgrade` store their results, beside dist/."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    return _own() / "image"


def root_folder() -> Path:
    """Returns where the image's file system is unpacked."""
    return cache() / "root"


def differing(source: Path, root: Path) -> list[Path]:
    """Returns the files of Lasthop that an unpacked image does not have as they are in `source`."""
    (packages,) = (root / "opt/lasthop/lib").glob("python3.*/site-packages")
    names = {
        file.relative_to(folder)
        for folder in (source, packages)
        for package in ("lasthop", "lasthop_import", "lasthop_judge")
        for file in (folder / package).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    return sorted(name for name in names if _bytes(source / name) != _bytes(packages / name))


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def upgrades() -> Path:
    """Returns where other versions are installed, a folder for each commit."""
    return _own() / "upgrades"


def _own() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lasthop"
