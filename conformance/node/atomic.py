"""Writes volumes like the kubelet's atomic writer: readers see all old files or all new files, and can watch one symlink.

volume/tls.crt -> ..data/tls.crt        volume/..data -> ..2026_11_16_01_30_00.123        volume/..2026_…/tls.crt
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


def write(volume: Path, files: Mapping[str, File]) -> bool:
    """Make the volume hold exactly these files (paths may have folders). Whether anything changed."""
    data = volume / "..data"
    current = data.resolve() if data.is_symlink() else None
    if current is not None and _read(current) == {path: file.content for path, file in files.items()}:
        return False
    folder = volume / datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.%f")
    folder.mkdir(mode=0o755)
    for path, file in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        os.chown(target, file.uid, file.gid)
        target.chmod(file.mode)
    fresh = volume / "..data_tmp"
    fresh.symlink_to(folder.name)
    fresh.rename(data)
    _show(volume, {path.split("/", 1)[0] for path in files})
    if current is not None:
        shutil.rmtree(current)
    return True


def _read(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _show(volume: Path, names: set[str]) -> None:
    """The names that users see: symlinks through ..data, which never change while the name exists."""
    for name in names:
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    for entry in volume.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
