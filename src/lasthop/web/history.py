"""What has become of requests like one that is explained: how many there were lately, and the last that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.base.text.printable import printable
from lasthop.edge.observe.observations import Observations
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.engine.plan.upstream import Hop

PATH: Final = 80
SHOWN: Final = 3
"""Failures that are told."""


def with_history(answer: Json, observations: Observations, feed: RequestFeed | None) -> Json:
    """Returns the answer with lines about its route at the end of its explanation."""
    key = Key.parse(answer.get("route") or "")
    if key is None:
        return answer
    failed = _distinct(each for each in feed.failed(answer["route"]) if _alike(each, answer)) if feed else []
    lines = [*_traffic(observations, key), *map(_failure, failed)]
    explanation = {**answer["explanation"], "because": [*answer["explanation"].get("because", ()), *lines]}
    recent = [
        {"time": each.time, "method": each.method, "path": each.path, "status": each.status, "why": each.why}
        for each in failed
    ]
    return {**answer, "explanation": explanation, "last_failures": recent}


def _alike(entry: AccessLogEntry, answer: Json) -> bool:
    """Returns whether a request went where this one would: to one of its backends, or if it has none, for the same path."""
    hop = Hop.parse(entry.upstream_cluster or "")
    to = {(each.get("backend"), each.get("port")) for each in answer.get("backends", ()) if each.get("backend")}
    if to:
        return hop is not None and (str(hop.backend), hop.port) in to
    return hop is None and (entry.path or "").partition("?")[0] == answer.get("path")


def _distinct(failed: Iterable[AccessLogEntry]) -> list[AccessLogEntry]:
    """Returns the latest of each kind of failure."""
    kinds: dict[tuple[object, ...], AccessLogEntry] = {}
    for each in failed:
        kinds.setdefault((each.status, each.why, each.upstream_cluster), each)
    return list(kinds.values())[:SHOWN]


def _traffic(observations: Observations, route: Key) -> Iterator[Json]:
    total, rate = observations.route(route), observations.rate(route)
    if not total.requests:
        yield {"text": "observed: no request has come to this route yet"}
        return
    share = f", {rate.errors / rate.requests:.0%} of them failed" if rate.requests else ""
    slow = f", p99 {rate.p99 * 1000:,.0f} ms" if rate.p99 is not None else ""
    since = f"{total.requests:,} requests to this route so far, {total.errors:,} with 5xx"
    yield {"text": f"observed: {since}; {rate.requests:,.1f} a second lately{share}{slow}"}


def _failure(entry: AccessLogEntry) -> Json:
    hop = Hop.parse(entry.upstream_cluster or "")
    to = f" to {hop.backend}:{hop.port}" if hop else ""
    asked = f"{entry.method or 'connection'} {(entry.path or entry.authority or '')[:PATH]}"
    why = f": {entry.why}" if entry.why else ", the backend's own answer"
    return {"text": printable(f"failed at {entry.time}: {entry.status or 'closed'} {asked}{to}{why}"), "state": "bad"}
