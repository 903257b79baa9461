"""The log: text on a terminal, JSON lines elsewhere; always on standard error. Standard output is for access logs."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from lasthop.base.text import terminal as terminals
from lasthop.base.text.log_levels import LASTHOP as LEVELS
from lasthop.base.text.printable import clean

FORMATS: Final = ("text", "json")
Fields = Mapping[str, Any]
COLOURS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
BRIGHT, DIM, NAME, VALUE, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[35m", "\x1b[0m"
QUOTED: Final = frozenset(" \t\r\n=\"'")
"""Characters that would make the end of a value unclear."""


class Log:
    """Writes a line for each event, with its fields."""

    def __init__(self) -> None:
        self.level = "info"
        """The lowest level that is written."""
        self.write: Callable[[str, str, Fields], None] = lambda *entry: _print(text_line(*entry))

    def debug(self, event: str, **fields: Any) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log("error", event, fields)

    def _log(self, level: str, event: str, fields: Fields) -> None:
        if LEVELS.index(level) >= LEVELS.index(self.level):
            self.write(level, event, fields)


LOG: Final = Log()
"""The log of this process."""


def configure(format: str = "", level: str = "info") -> None:
    """Configures the log of this process. `format` is one of `FORMATS`; empty: text on a terminal, JSON elsewhere."""
    LOG.level = level
    if is_text(format, sys.stderr.isatty()):
        coloured = terminals.coloured(sys.stderr)
        LOG.write = lambda *entry: _print(text_line(*entry, coloured=coloured))
    else:
        LOG.write = lambda *entry: _print(json_line(*entry))


def is_text(format: str, terminal: bool) -> bool:
    return format == "text" if format else terminal


def json_line(level: str, event: str, fields: Fields) -> str:
    """Returns a line of JSON, which escapes untrusted text by itself."""
    now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({**fields, "event": event, "level": level, "timestamp": now}, default=repr)


def text_line(level: str, event: str, fields: Fields, *, coloured: bool = False) -> str:
    """Returns a printable line for a terminal. Omits the `object` field of findings (events with a `reason`), because their
    text names the object."""

    def shown(style: str, part: str) -> str:
        return f"{style}{part}{PLAIN}" if coloured else part

    kept = sorted((name, clean(value)) for name, value in fields.items() if not (name == "object" and "reason" in fields))
    level_shown = shown(COLOURS[level] + BRIGHT, f"{level:<9}")
    head = f"{shown(DIM, f'{datetime.datetime.now():%H:%M:%S}')} [{level_shown}] {shown(BRIGHT, clean(event))}"
    return " ".join((head, *(f"{shown(NAME, name)}={shown(VALUE, _quoted(value))}" for name, value in kept)))


def _quoted(value: object) -> str:
    return value if isinstance(value, str) and not QUOTED & set(value) else repr(value)


def _print(line: str) -> None:
    """Writes the line in one call, because threads log, too. A log that cannot be written must not stop the gateway."""
    with contextlib.suppress(OSError, ValueError):  # a full disk, a reader that is gone; a closed file
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
