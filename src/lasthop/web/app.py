"""The admin server. Read-only, on loopback and on a unix socket; shows no Secret, and of a ConfigMap only certificates."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from lasthop.api.addresses import is_ip
from lasthop.api.meta import Key
from lasthop.outputs.audit import document as audit_document
from lasthop.probe.result import document
from lasthop.web.contents import without_contents
from lasthop.web.controller_view import ControllerView
from lasthop.web.metrics import metrics
from lasthop.web.page import live, page
from lasthop.web.slices import Shared

VIEW: Final = web.AppKey("view", ControllerView)
POLICY: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""The page shows names and messages that users have written; none of it may run as code."""
METRICS: Final = web.AppKey("metrics", Shared[bytes])
METRICS_AGE: Final = 1.0
"""Seconds that an answer of /metrics may be old: however many ask, it is worked out once."""
PUBLIC: Final = frozenset({"/healthz", "/readyz"})
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
CLUSTER_NAMES: Final = (".svc", ".svc.cluster.local")
"""How names end that only a cluster's own DNS resolves."""


FORWARDED: Final = ("forwarded", "via", "x-forwarded-", "x-envoy-", "x-real-ip")
"""How the names of headers begin that proxies add."""


class AdminUnusable(Exception):
    """The admin address cannot be used; the text says why and what to do."""


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Only this machine (in a Pod: the Pod, which is where a port-forward comes from) is told of the objects; and a page of
    another site must not read this one through a name that resolves to loopback (DNS rebinding). A Prometheus elsewhere asks
    for /metrics by the Pod's address, or by a name that no other site can have. What a kubelet asks tells nothing."""
    if request.path in PUBLIC or _is_local(request):
        return await handler(request)
    if request.path != "/metrics":
        raise web.HTTPMisdirectedRequest(text="use localhost or 127.0.0.1, and no proxy\n")
    if not _is_internal(_host(request)):
        raise web.HTTPMisdirectedRequest(text="use an IP address, localhost or a name of the cluster\n")
    return await handler(request)


def _is_local(request: web.Request) -> bool:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    if not peer:
        return True
    return _host(request) in LOCAL_NAMES and ipaddress.ip_address(peer[0]).is_loopback and not _forwarded(request)


def _forwarded(request: web.Request) -> bool:
    """Whether it came through a proxy. On a host that runs the proxies, the author of a route and an EndpointSlice could
    otherwise expose this page to the network. This is not a security boundary: a proxy may be told to remove these headers."""
    return any(name.lower().startswith(FORWARDED) for name in request.headers)


def _host(request: web.Request) -> str:
    """Of the Host header, without the port."""
    name = request.host.rpartition(":")[0] if not request.host.endswith("]") else request.host
    return (name or request.host).lower()


def _is_internal(host: str) -> bool:
    """Whether no web site can have this name."""
    return is_ip(host.strip("[]")) or host in LOCAL_NAMES or host.rstrip(".").endswith(CLUSTER_NAMES)


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    """503 if the process is not ready; with `?strict` also if something that was written is not in force. Only this machine is
    told why: it names objects and files."""
    found = request.app[VIEW].readiness()
    strict = "strict" in request.query
    ready = not (found.problems if strict else found.unready)
    lines = found.problems if _is_local(request) else ()
    text = "".join(f"{line}\n" for line in ("ready" if ready else "not ready", *lines))
    return web.Response(text=text, status=200 if ready else 503)


async def _readiness(request: web.Request) -> web.Response:
    found = request.app[VIEW].readiness()
    return _json({"ready": not found.unready, "settled": found.settled, "problems": found.problems})


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=await request.app[METRICS].get(), content_type="text/plain", charset="utf-8")


async def _objects(request: web.Request) -> web.Response:
    """Any user of this machine can ask by TCP, and is told what ConfigMaps hold only where that is public by nature."""
    found = await request.app[VIEW].objects(request.query.get("kind"))
    return await _large(found if _by_socket(request) else [without_contents(document) for document in found])


async def _findings(request: web.Request) -> web.Response:
    found = await request.app[VIEW].findings()
    return _json([{**msgspec.to_builtins(f), "object": str(f.object) if f.object else None} for f in found])


async def _not_applied(request: web.Request) -> web.Response:
    found = request.app[VIEW].not_applied()
    return _json([{**msgspec.to_builtins(each), "objects": [str(key) for key in each.objects]} for each in found])


async def _explain(request: web.Request) -> web.Response:
    query = request.query
    key = Key(query.get("kind", ""), query.get("namespace", ""), query.get("name", ""))
    found = await request.app[VIEW].explain(key, reads=bool(query.get("reads")))
    if found is None:
        raise web.HTTPNotFound(text=f"there is no {key}\n")
    return await _large(found)


async def _audit(request: web.Request) -> web.Response:
    return await _large(await asyncio.to_thread(audit_document.document, await request.app[VIEW].audit()))


async def _probe(request: web.Request) -> web.Response:
    """Only for the user whose gateway it is, by the socket: it connects to backends, to any address that is given."""
    if not _by_socket(request):
        raise web.HTTPForbidden(text="ask by the admin socket: lasthop probe\n")
    kind, namespace, name = (request.query.get(part, "") for part in ("kind", "namespace", "name"))
    key = Key(kind or "BackendTLSPolicy", namespace, name)
    return _json(document(await request.app[VIEW].probe(key, request.query.get("address", ""))))


def _by_socket(request: web.Request) -> bool:
    """The unix socket is only for the user whose gateway it is."""
    return request.transport is not None and not request.transport.get_extra_info("peername")


async def _page(request: web.Request) -> web.Response:
    return web.Response(text=await page(request.app[VIEW]), content_type="text/html", headers=POLICY)


async def _live(request: web.Request) -> web.Response:
    changed = await live(request.app[VIEW], request.query.get("seen", ""))
    return web.Response(status=204) if changed is None else web.Response(text=changed, content_type="text/html")


async def _large(value: object) -> web.Response:
    """What may be megabytes is encoded beside the event loop."""
    body = await asyncio.to_thread(msgspec.json.encode, value)
    return web.Response(body=body, content_type="application/json")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def application(view: ControllerView) -> web.Application:
    app = web.Application(middlewares=[_local_only])
    app[VIEW] = view
    app[METRICS] = Shared(lambda: metrics(view), seconds=METRICS_AGE)
    app.add_routes(
        [
            web.get("/", _page),
            web.get("/live", _live),
            web.static("/static", Path(__file__).parent / "static"),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/metrics", _metrics),
            web.get("/api/readiness", _readiness),
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
async def serving(view: ControllerView, address: str, socket: Path) -> AsyncIterator[None]:
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
