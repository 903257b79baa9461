"""Remembers the last failures, the same one once with a count, so that a page can show them as they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.engine.plan.upstream import Hop
from lasthop.web.picture import Line, line_id

KEPT: Final = 50


class Failed(msgspec.Struct, frozen=True):
    """One way in which requests or connections fail."""

    last: float
    """Unix time."""
    count: int
    why: str
    line: str = ""
    """The id of the line that it concerns; empty: it came to no backend."""
    route: str = ""
    endpoint: str = ""
    request: str = ""
    """The last one, as `GET shop.example/cart`."""
    status: str = ""


class RecentFailures:
    """The last ways in which requests have failed: bounded, however many fail and however they differ."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, ...], Failed] = {}
        """The last to fail last."""

    def add(self, entry: AccessLogEntry, now: float) -> None:
        why = entry.why or f"the backend answered {entry.grpc_status or entry.status or ''}".rstrip()
        status = entry.grpc_status or (str(entry.status) if entry.status else "")
        route, cluster, endpoint = entry.route or "", entry.upstream_cluster or "", entry.upstream_host or ""
        key = (route, cluster, endpoint, status, why)
        known = self._failed.pop(key, None)
        request = f"{entry.method or ''} {entry.authority or ''}{entry.path or ''}".strip()
        self._failed[key] = Failed(now, known.count + 1 if known else 1, why, _line(cluster), route, endpoint, request, status)
        if len(self._failed) > KEPT:
            del self._failed[next(iter(self._failed))]

    def last(self) -> list[Failed]:
        """Returns them, the last to fail first."""
        return list(reversed(self._failed.values()))


def _line(cluster: str) -> str:
    """Returns the id of the line that a cluster belongs to."""
    hop = Hop.parse(cluster)
    if hop is None:
        return ""
    own = "" if hop.protocol.policed else hop.protocol
    return line_id(hop.gateway, hop.backend, hop.port, own)


def observed_failures(lines: Iterable[Line]) -> Iterator[Failed]:
    """Yields the failures that proxies have reported: what there is of them where their logs are elsewhere."""
    for line in lines:
        for each in line.endpoints:
            if each.failures:
                route = line.routes[0] if len(line.routes) == 1 else ""
                yield Failed(each.last_failure, each.failures, each.failure, line.id, route, each.address)


def latest(recent: Iterable[Failed], observed: Iterable[Failed]) -> list[Failed]:
    """Returns both, each endpoint's failures once: a request says more than a count."""
    found = list(recent)
    known = {(each.line, each.endpoint) for each in found}
    found += (each for each in observed if (each.line, each.endpoint) not in known)
    return sorted(found, key=lambda each: -each.last)[:KEPT]
