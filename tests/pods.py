"""An API server with Pods that ports can be forwarded to, as the kubelet does it over WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from lasthop.edge.kubernetes.client import Client
from tests.fake_api import Access

PORT = 19000
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def pod(name: str, port: int = PORT, ready: bool = True) -> dict[str, Any]:
    ports = [{"name": "xds", "containerPort": 18000}, {"name": "admin", "containerPort": port}]
    spec = {"containers": [{"name": "controller", "ports": ports}]}
    return {"metadata": {"name": name, "namespace": "lasthop-system"}, "spec": spec, "status": READY if ready else {}}


class Pods:
    def __init__(self) -> None:
        self.holder = ""
        self.pods: dict[str, dict[str, Any]] = {}
        self.listening: dict[tuple[str, int], int] = {}
        """The local port behind each (Pod, port)."""
        self.opens = True
        """Whether ports are forwarded at all: something on the way may know no WebSockets."""
        self.denied: set[str] = set()
        """Forbidden actions: `leases`, `pods`, `portforward`."""
        self.forwarded: list[str] = []
        self.protocol = "v4.channel.k8s.io"
        self.url = ""

    @property
    def access(self) -> Access:
        return Access(self.url, "a token")

    def _check(self, request: web.Request, what: str) -> None:
        if request.headers.get("Authorization") != "Bearer a token":
            raise web.HTTPUnauthorized
        if what in self.denied:
            raise web.HTTPForbidden(text=f"{what} is forbidden")

    async def lease(self, request: web.Request) -> web.Response:
        self._check(request, "leases")
        if not self.holder:
            raise web.HTTPNotFound
        return web.json_response({"spec": {"holderIdentity": self.holder}})

    async def get(self, request: web.Request) -> web.Response:
        self._check(request, "pods")
        document = self.pods.get(request.match_info["name"])
        if document is None:
            raise web.HTTPNotFound
        return web.json_response(document)

    async def list(self, request: web.Request) -> web.Response:
        self._check(request, "pods")
        assert request.query["labelSelector"] == "app.kubernetes.io/name=lasthop-controller"
        return web.json_response({"items": list(self.pods.values())})

    async def forward(self, request: web.Request) -> web.WebSocketResponse:
        self._check(request, "portforward")
        name, port = request.match_info["name"], int(request.query["ports"])
        if name not in self.pods or not self.opens:
            raise web.HTTPNotFound
        self.forwarded.append(name)
        socket = web.WebSocketResponse(protocols=(self.protocol,))
        await socket.prepare(request)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.listening.get((name, port), 1))
        except OSError as error:
            await socket.send_bytes(b"\1" + f"failed to connect to localhost:{port}: {error.strerror}".encode())
            await socket.close()
            return socket

        async def back() -> None:
            while chunk := await reader.read(1000):
                await socket.send_bytes(b"\0" + chunk)
            await socket.close()

        async with asyncio.TaskGroup() as tasks:
            returning = tasks.create_task(back())
            async for message in socket:
                assert message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\0"
                writer.write(message.data[1:])
                await writer.drain()
            returning.cancel()
        writer.close()
        return socket

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Pods]:
        app = web.Application()
        base = "/api/v1/namespaces/lasthop-system/pods"
        app.add_routes(
            [
                web.get("/apis/coordination.k8s.io/v1/namespaces/lasthop-system/leases/lasthop", self.lease),
                web.get(base, self.list),
                web.get(f"{base}/{{name}}", self.get),
                web.get(f"{base}/{{name}}/portforward", self.forward),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def cluster(*names: str, holder: str = "") -> AsyncIterator[tuple[Pods, Client]]:
    pods = Pods()
    pods.holder = holder
    pods.pods = {name: pod(name) for name in names}
    async with pods.serving(), Client(pods.access, timeout=5.0) as client:  # type: ignore[arg-type]
        yield pods, client
