"""The admin server. Read-only, on loopback and on a unix socket; holds no secret."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from lasthop.api.meta import Key
from lasthop.web.metrics import metrics
from lasthop.web.page import live, page
from lasthop.web.view import View

VIEW: Final = web.AppKey("view", View)
POLICY: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Names and messages of the objects are shown here; whatever they hold, none of it runs."""
PUBLIC: Final = frozenset({"/healthz", "/readyz", "/metrics"})
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class AdminUnusable(Exception):
    """The admin address cannot be had; the text says why and what to do."""


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Only this machine (in a Pod: the Pod, which is where a port-forward comes from) is told of the objects; and a page of
    another site must not read this one through a name that resolves to loopback (DNS rebinding). What a kubelet or Prometheus
    asks by the pod's address tells nothing about them."""
    if request.path in PUBLIC:
        return await handler(request)
    peer = request.transport.get_extra_info("peername") if request.transport else None
    name = request.host.rpartition(":")[0] if not request.host.endswith("]") else request.host
    if peer and not ((name or request.host) in LOCAL_NAMES and ipaddress.ip_address(peer[0]).is_loopback):
        raise web.HTTPMisdirectedRequest(text="use localhost or 127.0.0.1\n")
    return await handler(request)


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    if request.app[VIEW].ready:
        return web.Response(text="ready\n")
    return web.Response(text="not ready: a proxy has not acknowledged its configuration yet\n", status=503)


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=await metrics(request.app[VIEW]), content_type="text/plain", charset="utf-8")


async def _objects(request: web.Request) -> web.Response:
    return _json(request.app[VIEW].objects(request.query.get("kind")))


async def _findings(request: web.Request) -> web.Response:
    found = request.app[VIEW].findings()
    return _json([{**msgspec.to_builtins(f), "object": str(f.object) if f.object else None} for f in found])


async def _not_applied(request: web.Request) -> web.Response:
    found = request.app[VIEW].not_applied()
    return _json([{**msgspec.to_builtins(each), "objects": [str(key) for key in each.objects]} for each in found])


async def _explain(request: web.Request) -> web.Response:
    query = request.query
    key = Key(query.get("kind", ""), query.get("namespace", ""), query.get("name", ""))
    found = request.app[VIEW].explain(key, reads=bool(query.get("reads")))
    if found is None:
        raise web.HTTPNotFound(text=f"there is no {key}\n")
    return _json(found)


async def _audit(request: web.Request) -> web.Response:
    return _json(request.app[VIEW].audit())


async def _probe(request: web.Request) -> web.Response:
    """Only for the user whose gateway it is, by the socket: it connects to backends, to any address that is given."""
    if request.transport is None or request.transport.get_extra_info("peername"):
        raise web.HTTPForbidden(text="ask by the admin socket: lasthop probe\n")
    kind, namespace, name = (request.query.get(part, "") for part in ("kind", "namespace", "name"))
    key = Key(kind or "BackendTLSPolicy", namespace, name)
    return _json(await request.app[VIEW].probe(key, request.query.get("address", "")))


async def _page(request: web.Request) -> web.Response:
    return web.Response(text=page(request.app[VIEW]), content_type="text/html", headers=POLICY)


async def _live(request: web.Request) -> web.Response:
    changed = live(request.app[VIEW], request.query.get("seen", ""))
    return web.Response(status=204) if changed is None else web.Response(text=changed, content_type="text/html")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def application(view: View) -> web.Application:
    app = web.Application(middlewares=[_local_only])
    app[VIEW] = view
    app.add_routes(
        [
            web.get("/", _page),
            web.get("/live", _live),
            web.static("/static", Path(__file__).parent / "static"),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/metrics", _metrics),
            web.get("/api/objects", _objects),
            web.get("/api/findings", _findings),
            web.get("/api/not-applied", _not_applied),
            web.get("/api/explain", _explain),
            web.get("/api/audit", _audit),
            web.get("/api/probe", _probe),
        ]
    )
    return app


@contextlib.asynccontextmanager
async def serving(view: View, address: str, socket: Path) -> AsyncIterator[None]:
    """`address` is HOST:PORT; the socket is for the CLI."""
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application(view), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        socket.unlink(missing_ok=True)
        await web.UnixSite(runner, str(socket)).start()
        socket.chmod(0o600)
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        except OSError as error:
            text = f"the admin address {address} cannot be used: {error.strerror or error}; choose another with --admin"
            raise AdminUnusable(text) from error
        yield
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await runner.cleanup()
        socket.unlink(missing_ok=True)
