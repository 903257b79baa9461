"""Collects log lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from lasthop.base.text.logs import LOG, Fields


@contextlib.contextmanager
def captured() -> Iterator[list[dict[str, Any]]]:
    """Fields of each entry, with its `event` and `level`, instead of lines."""
    entries: list[dict[str, Any]] = []

    def write(level: str, event: str, fields: Fields) -> None:
        entries.append({**fields, "event": event, "level": level})

    before, LOG.write = LOG.write, write
    try:
        yield entries
    finally:
        LOG.write = before
