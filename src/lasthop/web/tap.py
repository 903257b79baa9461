"""Serves /api/tap: requests as they are logged, a line of JSON each, until the reader disconnects."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.entry import AccessLogEntry, document
from lasthop.edge.proxy.request_feed import FeedReader, RequestFeed, TooManyReaders
from lasthop.engine.plan.upstream import Hop

HEARTBEAT_INTERVAL: Final = 5.0
"""Seconds between two heartbeats; without them a disconnected reader is noticed only with the next request."""


async def tap(request: web.Request, feed: RequestFeed | None) -> web.StreamResponse:
    if feed is None:
        text = "the proxies of this controller run elsewhere: see their own logs, for example with kubectl logs\n"
        raise web.HTTPNotFound(text=text)
    failed, route, backend = (request.query.get(name, "") for name in ("failed", "route", "backend"))
    try:
        with feed.reading() as reader:
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
            await response.prepare(request)
            await response.write(b"{}\n")
            while True:
                entries, missed = await _read(reader)
                kept = [entry for entry in entries if wanted(entry, failed=bool(failed), route=route, backend=backend)]
                await response.write(_lines(kept, missed))
    except TooManyReaders as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
    except (ConnectionError, asyncio.CancelledError):
        return response


async def _read(reader: FeedReader) -> tuple[list[AccessLogEntry], int]:
    """Returns the next requests and the number of missed ones; nothing after a while without any."""
    try:
        async with asyncio.timeout(HEARTBEAT_INTERVAL):
            return await reader.read()
    except TimeoutError:
        return [], 0


def _lines(entries: list[AccessLogEntry], missed: int) -> bytes:
    """Returns a line for each request; an empty object as a heartbeat."""
    lines: list[object] = [document(entry) for entry in entries]
    lines += [{"missed": missed}] if missed else []
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines or [{}])


def wanted(entry: AccessLogEntry, *, failed: bool, route: str, backend: str) -> bool:
    """Returns whether an entry matches the filter. `route`: `HTTPRoute shop/web`, `shop/web` or `web`; `backend` likewise;
    empty: any."""
    if failed and not entry.failed:
        return False
    if route and not _named(Key.parse(entry.route or ""), route):
        return False
    hop = Hop.parse(entry.upstream_cluster or "") if backend else None
    return not backend or (hop is not None and _named(hop.backend, backend))


def _named(key: Key | None, name: str) -> bool:
    return key is not None and name.lower() in (str(key).lower(), key.argument, key.path, key.name)
