"""Collects the last failed requests: for the page, each kind once with a count, and for the explanation of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.base.text.printable import printable
from lasthop.edge.observe.observations import Observations
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.engine.plan.upstream import Hop
from lasthop.web.picture import Line, line_id

KEPT: Final = 50
MAX_PATH_LENGTH: Final = 80
"""Displayed characters of a path."""
MAX_EXPLAINED: Final = 3
"""Failures in the explanation of a request."""


class Failed(msgspec.Struct, frozen=True):
    """A kind of failure of requests or connections."""

    last: float
    """Unix time."""
    count: int
    why: str
    line: str = ""
    """The id of the affected line; empty: no backend was reached."""
    route: str = ""
    endpoint: str = ""
    request: str = ""
    """The last request, as `GET shop.example/cart`."""
    status: str = ""


class RecentFailures:
    """Keeps the last kinds of failures, in bounded memory."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, ...], Failed] = {}
        """The latest is last."""

    def add(self, entry: AccessLogEntry, now: float) -> None:
        status = entry.grpc_status or (str(entry.status) if entry.status else "")
        why = entry.why or f"the backend responded with {status}".rstrip()
        route, cluster, endpoint = entry.route or "", entry.upstream_cluster or "", entry.upstream_host or ""
        key = (route, cluster, endpoint, status, why)
        previous = self._failed.pop(key, None)
        count = previous.count + 1 if previous else 1
        self._failed[key] = Failed(now, count, why, _line(cluster), route, endpoint, _request(entry), status)
        if len(self._failed) > KEPT:
            del self._failed[next(iter(self._failed))]

    def last(self) -> list[Failed]:
        return list(reversed(self._failed.values()))


def _request(entry: AccessLogEntry) -> str:
    return f"{entry.method or ''} {entry.authority or ''}{entry.path or ''}".strip()


def _line(cluster: str) -> str:
    """Returns the id of a cluster's line."""
    hop = Hop.parse(cluster)
    if hop is None:
        return ""
    protocol = "" if hop.protocol.policed else hop.protocol
    return line_id(hop.gateway, hop.backend, hop.port, protocol)


def observed_failures(lines: Iterable[Line]) -> Iterator[Failed]:
    """Yields the failures reported by proxies, the only source if their logs are elsewhere."""
    for line in lines:
        for endpoint in line.endpoints:
            if endpoint.failures:
                route = line.routes[0] if len(line.routes) == 1 else ""
                yield Failed(endpoint.last_failure, endpoint.failures, endpoint.failure, line.id, route, endpoint.address)


def latest(recent: Iterable[Failed], observed: Iterable[Failed]) -> list[Failed]:
    """Merges both sources. An endpoint with failed requests appears once, because a request has more details than a count."""
    failures = list(recent)
    reported = {(failure.line, failure.endpoint) for failure in failures}
    failures += (failure for failure in observed if (failure.line, failure.endpoint) not in reported)
    return sorted(failures, key=lambda failure: -failure.last)[:KEPT]


# --- of a request that is explained ----------------------------------------------------------------------------------


def with_history(answer: Json, observations: Observations, feed: RequestFeed | None) -> Json:
    """Adds lines about recent requests of its route to the explanation."""
    key = Key.parse(answer.get("route") or "")
    if key is None:
        return answer
    failed = _distinct(entry for entry in feed.failed(answer["route"]) if _alike(entry, answer)) if feed else []
    lines = [*_traffic(observations, key), *map(_failure, failed)]
    explanation = {**answer["explanation"], "because": [*answer["explanation"].get("because", ()), *lines]}
    recent = [
        {"time": entry.time, "method": entry.method, "path": entry.path, "status": entry.status, "why": entry.why}
        for entry in failed
    ]
    return {**answer, "explanation": explanation, "last_failures": recent}


def _alike(entry: AccessLogEntry, answer: Json) -> bool:
    """Returns whether a request went the same way: to one of its backends, or without one, for the same path."""
    hop = Hop.parse(entry.upstream_cluster or "")
    to = {(backend.get("backend"), backend.get("port")) for backend in answer.get("backends", ()) if backend.get("backend")}
    if to:
        return hop is not None and (str(hop.backend), hop.port) in to
    return hop is None and (entry.path or "").partition("?")[0] == answer.get("path")


def _distinct(failed: Iterable[AccessLogEntry]) -> list[AccessLogEntry]:
    """Returns the latest failure of each kind."""
    kinds: dict[tuple[object, ...], AccessLogEntry] = {}
    for entry in failed:
        kinds.setdefault((entry.status, entry.why, entry.upstream_cluster), entry)
    return list(kinds.values())[:MAX_EXPLAINED]


def _traffic(observations: Observations, route: Key) -> Iterator[Json]:
    total, rate = observations.route(route), observations.rate(route)
    if not total.requests:
        yield {"text": "observed: this route has had no requests yet"}
        return
    share = f", {rate.errors / rate.requests:.0%} of them failed" if rate.requests else ""
    slow = f", p99 {rate.p99 * 1000:,.0f} ms" if rate.p99 is not None else ""
    since = f"{total.requests:,} requests to this route so far, {total.errors:,} with 5xx"
    yield {"text": f"observed: {since}; {rate.requests:,.1f} a second lately{share}{slow}"}


def _failure(entry: AccessLogEntry) -> Json:
    hop = Hop.parse(entry.upstream_cluster or "")
    to = f" to {hop.backend}:{hop.port}" if hop else ""
    request = f"{entry.method or 'connection'} {(entry.path or entry.authority or '')[:MAX_PATH_LENGTH]}"
    why = f": {entry.why}" if entry.why else ", the backend's own response"
    return {"text": printable(f"failed at {entry.time}: {entry.status or 'closed'} {request}{to}{why}"), "state": "bad"}
