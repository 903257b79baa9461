"""Logs: for people on a terminal, JSON lines elsewhere; always on standard error. Standard output has the access log."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(*, verbose: bool = False) -> None:
    terminal = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer(pad_event_to=0) if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def get() -> Any:
    return structlog.get_logger()
