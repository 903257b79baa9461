"""Configures logs: text on a terminal, JSON lines elsewhere; always on standard error. Standard output is for access logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from lasthop.base.text import log_levels
from lasthop.base.text import terminal as terminals
from lasthop.base.text.printable import clean

FORMATS: Final = ("text", "json")


def configure(format: str = "", level: str = "info") -> None:
    """Configures the log of this process. `format` is one of `FORMATS`; empty: text on a terminal, JSON elsewhere."""
    set_level(level)
    structlog.configure(
        processors=processors(terminal=is_text(format, sys.stderr.isatty()), colours=terminals.coloured(sys.stderr)),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def level() -> str:
    """Returns the current log level."""
    return _lowest[0]


def set_level(level: str) -> None:
    """Sets the level, also for existing loggers, whose wrapper does not change."""
    _lowest[0] = log_levels.LASTHOP[log_levels.LASTHOP.index(level)]


_lowest: Final = ["info"]


def _filtered(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    named = "error" if method in ("exception", "critical") else method
    if named in log_levels.LASTHOP and log_levels.LASTHOP.index(named) < log_levels.LASTHOP.index(_lowest[0]):
        raise structlog.DropEvent
    return event


def is_text(format: str, terminal: bool) -> bool:
    return format == "text" if format else terminal


def processors(*, terminal: bool, colours: bool = False) -> list[Any]:
    """Returns structlog's processors. JSON escapes untrusted text; for a terminal it must be made printable."""
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal)
    renderers = (
        [_cleaned, structlog.dev.ConsoleRenderer(pad_event_to=0, colors=colours)]
        if terminal
        else [structlog.processors.JSONRenderer()]
    )
    return [_filtered, structlog.processors.add_log_level, stamp, *renderers]


def _cleaned(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Makes all values printable. Drops the object of a finding, whose text already names the object."""
    kept = {name: value for name, value in event.items() if not (name == "object" and "reason" in event)}
    return {name: value if name == "exc_info" else clean(value) for name, value in kept.items()}


def get() -> Any:
    return structlog.get_logger()
