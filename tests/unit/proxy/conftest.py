"""Short folders: the path of a unix socket has at most 107 bytes, and pytest's own are longer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name:
        yield Path(name)
