"""Serves the admin API and page on loopback and on a unix socket. It changes no objects. It shows no Secrets, and
only the certificates of ConfigMaps."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from socket import socket as TCPSocket
from typing import Final

import msgspec
from aiohttp import web

from lasthop.base.api.addresses import is_ip, split_port
from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.base.text import log_levels
from lasthop.edge.probe.result import document
from lasthop.edge.slices import Shared, in_slices
from lasthop.engine.outputs.audit import audit
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.request import MAX_SIZE, Request
from lasthop.web import page
from lasthop.web.answers import Answers, Busy
from lasthop.web.controller_view import ControllerView
from lasthop.web.engine_view import located
from lasthop.web.metrics import metrics
from lasthop.web.page_model import PageModel
from lasthop.web.probing import TooMany
from lasthop.web.redaction import without_secrets
from lasthop.web.tap import tap
from lasthop.web.traffic import TrafficReport

VIEW: Final = web.AppKey("view", ControllerView)
PAGE: Final = web.AppKey("page", PageModel)
ADMIN: Final = web.AppKey("admin", str)
MAX_FORM_SIZE: Final = 4096
"""Bytes."""
POLICY: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The page contains names and messages of users, which must neither run as code nor style the page."""
METRICS: Final = web.AppKey("metrics", Shared[bytes])
METRICS_AGE: Final = 1.0
"""Seconds for which a response of /metrics is cached, so that it is computed once for all readers."""
ANSWERS: Final = web.AppKey("answers", Answers)
TRAFFIC: Final = web.AppKey("traffic", Shared[TrafficReport])
TRAFFIC_AGE: Final = 0.5
PUBLIC: Final = frozenset({"/healthz", "/readyz"})
MAX_LINE: Final = 8 * MAX_SIZE
"""Characters of a request line: `explain request` contains another request, escaped."""
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
CLUSTER_NAMES: Final = (".svc", ".svc.cluster.local")
"""Suffixes of names that only a cluster's own DNS resolves."""


FORWARDED: Final = ("forwarded", "via", "x-forwarded-", "x-envoy-", "x-real-ip")
"""Prefixes of headers that proxies add."""


class AdminUnusable(Exception):
    """The admin address cannot be used; the text contains the reason and the remedy."""


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Rejects requests from elsewhere. Only this machine may read objects; in a Pod, only the Pod, where a port-forward ends.
    A page of another site must not read this one through a name that resolves to loopback (DNS rebinding). A remote Prometheus
    requests /metrics by the Pod's address, or by a name that no other site can have. Responses to a kubelet contain no
    details."""
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
    """Returns whether the request came through a proxy. On a host that runs the proxies, the author of a route and an
    EndpointSlice could otherwise expose this page to the network. This is not a security boundary, because a proxy may be
    configured to remove these headers."""
    return any(name.lower().startswith(FORWARDED) for name in request.headers)


def _host(request: web.Request) -> str:
    """Returns the name in the Host header, without the port."""
    name = request.host.rpartition(":")[0] if not request.host.endswith("]") else request.host
    return (name or request.host).lower()


def _is_internal(host: str) -> bool:
    """Returns whether a name cannot belong to a web site."""
    return is_ip(host.strip("[]")) or host in LOCAL_NAMES or host.rstrip(".").endswith(CLUSTER_NAMES)


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    """Responds with 503 if the process is not ready; with `?strict` also if some input is not in force. The reasons are for
    this machine only, because they name objects and files."""
    readiness = request.app[VIEW].readiness()
    strict = "strict" in request.query
    ready = not (readiness.problems if strict else readiness.unready)
    lines = readiness.problems if _is_local(request) else ()
    text = "".join(f"{line}\n" for line in ("ready" if ready else "not ready", *lines))
    return web.Response(text=text, status=200 if ready else 503)


async def _readiness(request: web.Request) -> web.Response:
    readiness = request.app[VIEW].readiness()
    return _json({"ready": not readiness.unready, "settled": readiness.settled, "problems": readiness.problems})


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=await request.app[METRICS].get(), content_type="text/plain", charset="utf-8")


def _shared_answer(make: Callable[[web.Request], Awaitable[object]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return await _answer(request, lambda: make(request))

    return answer


@_shared_answer
async def _objects(request: web.Request) -> object:
    """Returns objects. Any user of this machine can request them by TCP, so secrets are removed, and only public parts of
    ConfigMaps remain."""
    documents = await request.app[VIEW].objects(request.query.get("kind"))
    return documents if _by_socket(request) else await in_slices(without_secrets(document) for document in documents)


@_shared_answer
async def _count(request: web.Request) -> object:
    return {"objects": await request.app[VIEW].count(request.query.get("namespace", ""))}


@_shared_answer
async def _findings(request: web.Request) -> object:
    view = request.app[VIEW]

    def written(finding: Finding) -> Json:
        located_finding = located(finding, view.locate)
        return {
            **msgspec.to_builtins(located_finding),
            "object": str(located_finding.object) if located_finding.object else None,
        }

    return await in_slices(map(written, await view.findings()))


async def _not_applied(request: web.Request) -> web.Response:
    entries = request.app[VIEW].controller.not_applied
    return _json([{**msgspec.to_builtins(entry), "objects": [str(key) for key in entry.objects]} for entry in entries])


@_shared_answer
async def _explain(request: web.Request) -> object:
    key = Key(*(request.query.get(part, "") for part in Key._fields))
    explanation = await request.app[VIEW].explain(key)
    if explanation is None:
        raise web.HTTPNotFound(text=f"{key} does not exist\n")
    return explanation


async def _explain_request(request: web.Request) -> web.Response:
    try:
        client_request = msgspec.json.decode(request.query.get("request", ""), type=Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"request: {error}\n") from None
    return await _answer(request, lambda: request.app[VIEW].explain_request(client_request, request.query.get("gateway", "")))


@_shared_answer
async def _audit(request: web.Request) -> object:
    return await asyncio.to_thread(audit.document, await request.app[VIEW].audit())


@_shared_answer
async def _changes(request: web.Request) -> object:
    return request.app[VIEW].controller.record.record


@_shared_answer
async def _traffic(request: web.Request) -> object:
    return await request.app[TRAFFIC].get()


async def _tap(request: web.Request) -> web.StreamResponse:
    """Streams requests, only to the gateway's owner by the socket, because it shows the requests of clients."""
    if not _by_socket(request):
        raise web.HTTPForbidden(text=BY_SOCKET.format("tap"))
    return await tap(request, request.app[VIEW].requests)


async def _probe(request: web.Request) -> web.Response:
    """Probes a backend, only for the gateway's owner by the socket, because it connects to any given address."""
    if not _by_socket(request):
        raise web.HTTPForbidden(text=BY_SOCKET.format("probe"))
    kind, namespace, name = (request.query.get(part, "") for part in ("kind", "namespace", "name"))
    key = Key(kind or "BackendTLSPolicy", namespace, name)
    return _json(document(await request.app[VIEW].probe(key, request.query.get("address", ""))))


async def _envoy_config(request: web.Request) -> web.Response:
    """Returns Envoy's configuration, only to the gateway's owner by the socket, because it contains every address and
    header."""
    if not _by_socket(request):
        raise web.HTTPForbidden(text=BY_SOCKET.format("config dump"))
    return await _answer(request, lambda: request.app[VIEW].envoy_config(request.query.get("gateway", "")))


async def _log_level(request: web.Request) -> web.Response:
    """Returns the log levels; sets them by POST. Only for the gateway's owner by the socket."""
    if not _by_socket(request):
        raise web.HTTPForbidden(text=BY_SOCKET.format("log-level"))
    if request.method != "POST":
        return _json(await request.app[VIEW].log_levels())
    lasthop, envoy = request.query.get("lasthop", ""), request.query.get("envoy", "")
    if (lasthop and lasthop not in log_levels.LASTHOP) or (envoy and envoy not in log_levels.ENVOY):
        raise web.HTTPBadRequest(text="no such log level\n")
    return _json(await request.app[VIEW].set_log_levels(lasthop, envoy))


async def _proxies(request: web.Request) -> web.Response:
    """Returns whether the proxies of each Gateway are synchronized."""
    controller = request.app[VIEW].controller

    async def states() -> dict[str, object]:
        return {key.path: controller.server.state(key) for key in sorted(controller.fleet.gateways)}

    return await _answer(request, states)


BY_SOCKET: Final = "only the user of this gateway, or root, may request this, through the admin socket: lasthop {} --dir DIR\n"


def _by_socket(request: web.Request) -> bool:
    """Returns whether a request came by the unix socket, which is only for the gateway's owner."""
    return request.transport is not None and not request.transport.get_extra_info("peername")


async def _page(request: web.Request) -> web.Response:
    return _html(await page.page(request.app[PAGE], page.filter_of(request.query), request.query.get("hop", "")))


async def _live(request: web.Request) -> web.Response:
    filter = page.filter_of(request.query)
    changed = await page.live(request.app[PAGE], filter, request.query.get("seen", ""))
    if changed is None:
        return web.Response(status=204)
    # The typed text is part of the address; polling does not change it.
    typed = request.headers.get("HX-Trigger") == "filter"
    return _html(changed, **({"HX-Replace-Url": f"./{page.address(filter)}"} if typed else {}))


async def _detail(request: web.Request) -> web.Response:
    async def make() -> bytes:
        return (await page.detail(request.app[PAGE], request.query.get("hop", "")) or "").encode()

    return _html_or_404((await _shared(request, make)).decode() or None)


async def _state(request: web.Request) -> web.Response:
    return _html_or_404(await page.state(request.app[PAGE], request.query.get("hop", "")))


async def _probe_line(request: web.Request) -> web.Response:
    """Probes a line of the picture for a reader of the page; `probing.py` describes the protection against misuse."""
    model = request.app[PAGE]
    if not _same_origin(request):
        raise web.HTTPForbidden(text="only the page itself may request this\n")
    form = await request.post()
    hop, token = form.get("hop"), form.get("token")
    if not isinstance(token, str) or not model.probes.is_token(token):
        raise web.HTTPForbidden(text="this page is older than the running process: open the backend again\n")
    try:
        result = await model.probes.get(hop if isinstance(hop, str) else "")
    except TooMany:
        raise web.HTTPTooManyRequests(text="other probes are running: try again in some seconds\n") from None
    return _html_or_404(await page.probed(result) if result else None)


def _same_origin(request: web.Request) -> bool:
    """Returns whether a page of this server sent the request. Browsers send the origin, and no page can change it."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    return request.headers.get("Origin") == f"http://{request.host}"


def _html_or_404(text: str | None) -> web.Response:
    if text is None:
        raise web.HTTPNotFound(text="this backend no longer exists\n")
    return _html(text)


def _html(text: str, **headers: str) -> web.Response:
    return web.Response(text=text, content_type="text/html", headers={**POLICY, **headers})


async def _about(request: web.Request) -> web.Response:
    return _json({"version": version("lasthop"), "where": request.app[VIEW].where, "admin": request.app[ADMIN]})


async def _answer(request: web.Request, make: Callable[[], Awaitable[object]]) -> web.Response:
    """Responds with data of possibly megabytes: computed once for all simultaneous requests, and encoded outside the event
    loop."""

    async def encoded() -> bytes:
        return await asyncio.to_thread(msgspec.json.encode, await make())

    return web.Response(body=await _shared(request, encoded), content_type="application/json")


async def _shared(request: web.Request, make: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await request.app[ANSWERS].get((_by_socket(request), request.path_qs), make)
    except Busy:
        text = "too many requests at once: try again in some seconds, or use the admin socket\n"
        raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "5"}) from None


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def application(view: ControllerView, admin: str = "") -> web.Application:
    """Returns the page, the API and the metrics. `admin` is their HOST:PORT."""
    app = web.Application(middlewares=[_local_only], client_max_size=MAX_FORM_SIZE)
    app[VIEW], app[PAGE], app[ADMIN] = view, PageModel(view), admin
    app[ANSWERS] = Answers()
    app[METRICS] = Shared(lambda: metrics(view), seconds=METRICS_AGE)
    app[TRAFFIC] = Shared(lambda: view.traffic(), seconds=TRAFFIC_AGE)
    app.add_routes(
        [
            web.get("/", _page),
            web.get("/live", _live),
            web.get("/detail", _detail),
            web.get("/detail/state", _state),
            web.post("/probe", _probe_line),
            web.static("/static", Path(__file__).parent / "static"),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/metrics", _metrics),
            web.get("/api/about", _about),
            web.get("/api/readiness", _readiness),
            web.get("/api/objects", _objects),
            web.get("/api/count", _count),
            web.get("/api/findings", _findings),
            web.get("/api/not-applied", _not_applied),
            web.get("/api/explain", _explain),
            web.get("/api/explain-request", _explain_request),
            web.get("/api/audit", _audit),
            web.get("/api/changes", _changes),
            web.get("/api/traffic", _traffic),
            web.get("/api/probe", _probe),
            web.get("/api/tap", _tap),
            web.get("/api/envoy-config", _envoy_config),
            web.get("/api/proxies", _proxies),
            web.get("/api/log-level", _log_level),
            web.post("/api/log-level", _log_level),
        ]
    )
    return app


@contextlib.asynccontextmanager
async def serving(view: ControllerView, address: str, socket: Path, listening: TCPSocket | None = None) -> AsyncIterator[None]:
    """Serves the application at HOST:PORT, or on the open socket `listening`, and for the CLI on a unix socket."""
    host, port = split_port(address)
    runner = web.AppRunner(application(view, address), access_log=None, shutdown_timeout=1, max_line_size=MAX_LINE)
    await runner.setup()
    try:
        socket.unlink(missing_ok=True)
        await web.UnixSite(runner, str(socket)).start()
        socket.chmod(0o600)
        try:
            await (web.SockSite(runner, listening) if listening else web.TCPSite(runner, host, int(port))).start()
        except OSError as error:
            # asyncio repeats the address in its error texts; getaddrinfo's error numbers are negative.
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror or str(error)
            text = f"the admin address {address} cannot be used: {why}; choose another one with --admin"
            raise AdminUnusable(text) from error
        yield
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await runner.cleanup()
        socket.unlink(missing_ok=True)
