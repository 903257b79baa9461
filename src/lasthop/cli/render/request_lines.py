"""Renders requests of the access log as lines: JSON for programs; for people one line each, with repetitions counted."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Protocol

import click
import msgspec

from lasthop.base.text.printable import printable
from lasthop.edge.proxy.entry import AccessLogEntry, document
from lasthop.engine.plan.upstream import Hop

WINDOW: Final = 10.0
"""Seconds during which repetitions of a failure are counted instead of printed."""
MOST: Final = 200
"""Maximum of failures with separate counts; the others share one count."""
PATH: Final = 80
"""Maximum characters of a displayed path."""


class RequestLines(Protocol):
    def lines(self, entry: AccessLogEntry, now: float) -> list[str]: ...

    def due(self, now: float, *, last: bool = False) -> list[str]:
        """Returns the counts that are due; `last`: all that remain."""
        ...

    @property
    def deadline(self) -> float | None:
        """Returns the time at which `due` may return a count."""
        ...


class JsonLines:
    deadline = None

    def lines(self, entry: AccessLogEntry, now: float) -> list[str]:
        return [msgspec.json.encode(document(entry)).decode()]

    def due(self, now: float, *, last: bool = False) -> list[str]:
        return []


class TextLines:
    """Prints the first occurrence of a failure, then every `WINDOW` seconds the number of further ones."""

    def __init__(self, *, colours: bool = False) -> None:
        self._colours = colours
        self._repeated: dict[tuple[object, ...], _Repeated] = {}

    def lines(self, entry: AccessLogEntry, now: float) -> list[str]:
        if not entry.failed:
            return [request_line(entry, colours=self._colours)]
        key: tuple[object, ...] = (entry.gateway, entry.status, entry.grpc_status, entry.upstream_cluster, entry.why)
        repeated = self._repeated.get(key)
        if repeated is None and len(self._repeated) >= MOST:
            key = ()
            repeated = self._repeated.get(key)
        if repeated is None:
            self._repeated[key] = _Repeated(entry, now + WINDOW, others=not key)
            return [request_line(entry, colours=self._colours)]
        repeated.count += max(1, round(entry.stands_for))
        return []

    def due(self, now: float, *, last: bool = False) -> list[str]:
        lines = []
        for key, repeated in list(self._repeated.items()):
            if not last and repeated.until > now:
                continue
            if repeated.count:
                lines.append(repeated.line(now, colours=self._colours))
                repeated.count, repeated.until = 0, now + WINDOW
            else:
                del self._repeated[key]
        return lines

    @property
    def deadline(self) -> float | None:
        return min((repeated.until for repeated in self._repeated.values()), default=None)


class _Repeated:
    def __init__(self, entry: AccessLogEntry, until: float, *, others: bool) -> None:
        self.entry, self.until, self._others = entry, until, others
        self.count = 0

    def line(self, now: float, *, colours: bool) -> str:
        seconds = max(1, round(WINDOW - max(0.0, self.until - now)))
        failure = "other failures" if self._others else f"{_status(self.entry, colours)} -> {_backend(self.entry)}"
        why = "" if self._others else _why(self.entry)
        return f"{' ' * 8} and {self.count:,} more in {seconds} s: {failure}{why}"


def request_line(entry: AccessLogEntry, *, colours: bool = False) -> str:
    """Returns a line such as `07:15:15 503 GET /cart -> shop/api:443 10.0.0.1:8443  certificate has expired  (lasthop probe
    shop/api)`."""
    endpoint = f" {printable(entry.upstream_host)}" if entry.upstream_host else ""
    took = "" if entry.failed or entry.duration_ms is None else f"  {entry.duration_ms:g} ms"
    todo = f"  ({printable(hint)})" if (hint := entry.advice) else ""
    todo = click.style(todo, dim=True) if todo and colours else todo
    lead = f"{_clock(entry.time)} {_status(entry, colours)} {_request(entry)}"
    return f"{lead} -> {_backend(entry)}{endpoint}{took}{_why(entry)}{todo}"


def _request(entry: AccessLogEntry) -> str:
    host, path = printable(entry.authority or ""), printable(entry.path or "")
    if not entry.method:
        return f"connection {host}".rstrip()
    return f"{printable(entry.method)} {host}{path if len(path) <= PATH else f'{path[: PATH - 3]}...'}"


def _why(entry: AccessLogEntry) -> str:
    return f"  {printable(entry.why)}" if entry.why else ""


def _status(entry: AccessLogEntry, colours: bool) -> str:
    text = str(entry.status) if entry.status else "---"
    if entry.grpc_status and entry.grpc_status != "OK":
        text = f"{text} {printable(entry.grpc_status)}"
    colour = "red" if entry.failed else "yellow" if (entry.status or 0) >= 400 else "green"
    return click.style(text, fg=colour) if colours else text


def _backend(entry: AccessLogEntry) -> str:
    hop = Hop.parse(entry.upstream_cluster or "")
    if hop:
        return f"{hop.backend.path}:{hop.port}" if hop.backend.kind == "Service" else f"{hop.backend}:{hop.port}"
    return printable(entry.route) if entry.route else "no route"


def _clock(time: str | None) -> str:
    try:
        return datetime.fromisoformat(time or "").astimezone().strftime("%H:%M:%S")
    except ValueError:
        return datetime.now().astimezone().strftime("%H:%M:%S")
