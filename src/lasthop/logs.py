"""Configures logs: text on a terminal, JSON lines elsewhere; always on standard error. Standard output is for access logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from lasthop.printable import clean


def configure(*, verbose: bool = False) -> None:
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=processors(terminal=terminal),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def processors(*, terminal: bool) -> list[Any]:
    """Returns structlog's processors. JSON escapes untrusted text by itself; for a terminal it has to be made printable."""
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal)
    renderers = (
        [_cleaned, structlog.dev.ConsoleRenderer(pad_event_to=0)] if terminal else [structlog.processors.JSONRenderer()]
    )
    return [structlog.processors.add_log_level, stamp, *renderers]


def _cleaned(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: value if name == "exc_info" else clean(value) for name, value in event.items()}


def get() -> Any:
    return structlog.get_logger()
