"""A delta ADS server in a separate thread that sends given resources, including types that Lasthop does not serve."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from pathlib import Path

import grpc
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest

from lasthop.edge.xds.response import Response, encode
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, Resource

VIRTUAL_HOSTS = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
SCOPES = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
WHOLE = {CLUSTER, LISTENER, VIRTUAL_HOSTS, SCOPES}
"""Types of which an Envoy gets all resources; of others, it gets the named ones."""
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class Refused(Exception):
    """Envoy has not taken a response."""


class Ads:
    """Serves one Envoy."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._resources: dict[str, dict[str, Resource]] = {}
        self._named: dict[str, set[str]] = {}
        self._held: set[str] = set()
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[str, Future[float]] = {}
        self._nonce = 0
        self.refusals: list[str] = []
        self.answered: set[str] = set()
        """Types that Envoy has requested and received."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: grpc.aio.Server | None = None

    def start(self) -> None:
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def stop(self) -> None:
        """Closes the server, and keeps its resources."""
        if self._server:
            asyncio.run_coroutine_threadsafe(self._server.stop(0), self._loop).result()
            self._server = None

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def put(self, resources: Iterable[Resource]) -> None:
        """Sets the resources for Envoys that request them."""
        for resource in resources:
            self._resources.setdefault(resource.type_url, {})[resource.name] = resource

    def hold(self, *type_urls: str) -> None:
        """Leaves questions about these types unanswered, and answers all others, the ones that were held too."""
        self._held = set(type_urls)

    def push(self, resources: list[Resource]) -> tuple[int, Future[float]]:
        """Pushes resources of one type; returns their size in bytes, and an event for Envoy's acknowledgement."""
        self.put(resources)
        confirmed: Future[float] = Future()
        body = self._response(resources[0].type_url, resources, confirmed)
        self._loop.call_soon_threadsafe(self._send, body)
        return len(body), confirmed

    def _send(self, body: bytes) -> None:
        self._outgoing.put_nowait(body)

    def _response(self, type_url: str, resources: Iterable[Resource], confirmed: Future[float] | None = None) -> bytes:
        self._nonce += 1
        if confirmed:
            self._waiting[str(self._nonce)] = confirmed
        return encode(Response(type_url, str(self._nonce), 1, time.time(), tuple(resources)))

    async def _start(self) -> None:
        self._server = grpc.aio.server()
        method: grpc.RpcMethodHandler[DeltaDiscoveryRequest, bytes] = grpc.stream_stream_rpc_method_handler(
            self._stream, DeltaDiscoveryRequest.FromString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"DeltaAggregatedResources": method}),)
        )
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def _stream(self, requests: AsyncIterator[DeltaDiscoveryRequest], _context: object) -> AsyncIterator[bytes]:
        self._outgoing, self._named = asyncio.Queue(), {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(requests))
            while True:
                yield await self._outgoing.get()

    async def _read(self, requests: AsyncIterator[DeltaDiscoveryRequest]) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for request in requests:
                self._confirm(request)
                first = request.type_url not in self._named
                names = self._named.setdefault(request.type_url, set())
                new = set(request.resource_names_subscribe) - names
                names |= new
                if first or new:
                    tasks.create_task(self._answer(request.type_url, new))

    def _confirm(self, request: DeltaDiscoveryRequest) -> None:
        waiting = self._waiting.pop(request.response_nonce, None)
        refused = request.error_detail.message if request.HasField("error_detail") else ""
        if refused:
            self.refusals.append(refused)
        if waiting and refused:
            waiting.set_exception(Refused(refused))
        elif waiting:
            waiting.set_result(time.perf_counter())

    async def _answer(self, type_url: str, names: set[str]) -> None:
        while type_url in self._held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        known = self._resources.get(type_url, {})
        resources = list(known.values()) if type_url in WHOLE else [known[name] for name in names if name in known]
        if resources or type_url in WHOLE:
            self._send(self._response(type_url, resources))
            self.answered.add(type_url)
