"""Failures that proxies elsewhere have reported, as lines: what was added to the counts between two looks at /api/traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.times import rfc3339
from lasthop.base.text.printable import printable

_Place = tuple[str, str, str, int, str, str]


class ReportedFailure(msgspec.Struct, frozen=True):
    """Connections of all proxies to one endpoint that have failed since the last look, and why the last of them did."""

    gateway: str
    kind: str
    backend: str
    port: int
    protocol: str
    endpoint: str
    """Empty where there is none."""
    last: float
    """Unix time."""
    count: int
    why: str

    @property
    def target(self) -> str:
        """What `lasthop probe` takes."""
        return f"{self.kind.lower()}/{self.backend}"

    def named(self, given: str) -> bool:
        """Returns whether the backend is called so: `Service shop/api`, `service/shop/api`, `shop/api` or `api`; empty:
        any."""
        names = (f"{self.kind} {self.backend}", self.target, self.backend, self.backend.rpartition("/")[2])
        return not given or given.lower() in (name.lower() for name in names)


class ReportedFailures:
    """Remembers the counts of the last look."""

    def __init__(self) -> None:
        self._counts: dict[_Place, int] | None = None
        self._newest = 0.0

    def news(self, report: Json) -> list[ReportedFailure]:
        """Returns what is new, the oldest first. The first look only tells what to compare with; where a count has begun
        anew (another proxy, another leader), it is not known how many there were, and one is told."""
        known, newest = self._counts, self._newest
        found = list(_failed(report))
        self._counts = {_place(each): each.count for each in found}
        self._newest = max([newest, *(each.last for each in found)])
        if known is None:
            return []
        grown = []
        for each in found:
            before = known.get(_place(each))
            more = each.count - before if before is not None else 0
            if more <= 0 and each.last > newest:
                more = 1
            if more > 0:
                grown.append(msgspec.structs.replace(each, count=more))
        return sorted(grown, key=lambda each: each.last)


def _failed(report: Json) -> Iterator[ReportedFailure]:
    for hop in report["hops"]:
        for seen in hop["endpoints"]:
            if seen["failures"]:
                where = (hop["gateway"], hop["kind"], hop["backend"], hop["port"], hop["protocol"])
                yield ReportedFailure(*where, seen["address"], seen["last_failure"], seen["failures"], seen["failure"])


def _place(failure: ReportedFailure) -> _Place:
    return failure.gateway, failure.kind, failure.backend, failure.port, failure.protocol, failure.endpoint


def line(failure: ReportedFailure, *, colours: bool = False) -> str:
    """Returns a line such as `07:15:15 shop/web -> shop/api:443 10.0.0.1:8443  certificate has expired  (9 times; lasthop
    probe ...)`."""
    backend = failure.backend if failure.kind == "Service" else f"{failure.kind} {failure.backend}"
    times = f"{failure.count:,} times; " if failure.count > 1 else ""
    hint = f"  ({times}lasthop probe {printable(failure.target)})"
    why = printable(failure.why)
    return (
        f"{time.strftime('%H:%M:%S', time.localtime(failure.last))} {printable(failure.gateway)} -> "
        f"{printable(backend)}:{failure.port} {printable(failure.endpoint) or 'no endpoint'}  "
        f"{click.style(why, fg='red') if colours else why}{click.style(hint, dim=True) if colours else hint}"
    )


def document(failure: ReportedFailure) -> dict[str, Any]:
    return {**msgspec.structs.asdict(failure), "last": rfc3339(failure.last)}
