"""Where `make image` keeps what it has made, beside dist/."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lasthop" / "image"


def root_folder() -> Path:
    """Returns where the image's file system is unpacked."""
    return cache() / "root"
