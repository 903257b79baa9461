"""Where `make image` and `make upgrade` keep what they have made, beside dist/."""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    return _own() / "image"


def root_folder() -> Path:
    """Returns where the image's file system is unpacked."""
    return cache() / "root"


def upgrades() -> Path:
    """Returns where other versions are installed, a folder for each commit."""
    return _own() / "upgrades"


def _own() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lasthop"
