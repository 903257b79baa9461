"""Serves ADS: the only module of xds with gRPC, sockets, tasks and the clock.

    controller ──update──> Cache ──wake──> writer ──DeltaDiscoveryResponse──> Envoy
        ^───────── Observer <──events── reader <──DeltaDiscoveryRequest────────┘

One reader and one writer a stream. The writer asks its session until there is nothing to send, then sleeps until an update,
a request or the session's deadline wakes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, Protocol

import grpc
import msgspec
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest

from lasthop.api.meta import Key
from lasthop.outputs.envoy.resource import TYPES, Changes
from lasthop.xds import observing, replicas
from lasthop.xds.cache import Cache
from lasthop.xds.credentials import Credentials, peer_uid, server_credentials
from lasthop.xds.response import Response, encode
from lasthop.xds.session import Acked, Nacked, Session
from lasthop.xds.unix_socket import claim, release

MAX_REQUEST: Final = 64 * 1024 * 1024
"""A proxy that reconnects lists everything it has: some 200 bytes for each cluster and as much for its endpoints, so gRPC's
4 MiB would lock out a large Gateway permanently."""

GRACE: Final = 1.0
"""For streams to end by themselves, which takes a turn of the event loop unless a proxy does not read."""

OPTIONS: Final = (("grpc.max_receive_message_length", MAX_REQUEST),)
REMOTE_OPTIONS: Final = (
    *OPTIONS,
    # A node that dies does not close its connections; without pings its proxy would count as connected for hours.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Envoy pings every 30 s, also when idle. By default gRPC treats that as abuse and disconnects.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A proxy stays with its replica as long as the connection lasts, so after restarts all might be with one of them. Each new
    # connection goes to any of them, and certificates are verified again. gRPC varies the age by a tenth.
    ("grpc.max_connection_age_ms", 15 * 60 * 1000),
    ("grpc.max_connection_age_grace_ms", 5_000),
    # Another process on the same address would receive some of the proxies' connections.
    ("grpc.so_reuseport", 0),
)

Context = grpc.aio.ServicerContext[DeltaDiscoveryRequest, bytes]
Identify = Callable[[DeltaDiscoveryRequest, Context], Key | None]
"""Returns which Gateway a client serves, from its first request and gRPC's context; None if it is unknown."""


class Observer(Protocol):
    """Receives what proxies do. Called on the event loop; must not block."""

    def connected(self, gateway: Key) -> None: ...
    def disconnected(self, gateway: Key) -> None: ...
    def acked(self, gateway: Key, event: Acked) -> None: ...
    def nacked(self, gateway: Key, event: Nacked) -> None: ...


class TypeCounts(msgspec.Struct):
    """Counts since the start, of one type."""

    responses: int = 0
    resources: int = 0
    removals: int = 0
    bytes: int = 0
    acks: int = 0
    nacks: int = 0


class SyncState(msgspec.Struct, frozen=True):
    proxies: int
    synced: bool
    """At least one proxy is connected, and each has acknowledged everything."""
    decided: bool
    """The same, where a rejection counts too: it is reported elsewhere."""


class _Stream:
    def __init__(self, cache: Cache) -> None:
        self.session = Session(cache)
        self.wake = asyncio.Event()
        self.closed = False


class _Gateway:
    def __init__(self) -> None:
        self.cache = Cache()
        self.streams: set[_Stream] = set()
        self.unsure: set[_Stream] = set()
        """Streams that may lack something. One that does not comes to lack it only by a request or a change of the cache."""
        self._generation = self.cache.generation

    def wake(self) -> None:
        for stream in self.streams:
            stream.wake.set()

    @property
    def synced(self) -> bool:
        """Asked at every acknowledgement of every proxy, so it looks at no stream again that it has found in order."""
        if self._generation != self.cache.generation:
            self.unsure, self._generation = set(self.streams), self.cache.generation
        while self.unsure:
            stream = self.unsure.pop()
            if stream in self.streams and not stream.session.synced:
                self.unsure.add(stream)
                return False
        return bool(self.streams)


class Server:
    def __init__(self, observer: Observer, *, clock: Callable[[], float] = time.time) -> None:
        self.traffic = {type_url: TypeCounts() for type_url in TYPES}
        self._observer = observer
        self._clock = clock
        self._gateways: dict[Key, _Gateway] = {}
        self._opened = asyncio.Event()
        self.heard = 0
        """Requests of proxies since the start."""
        self.waiting = 0
        """Proxies that have come before `open`."""
        self._closed = False
        self._grpc: list[grpc.aio.Server] = []
        self._socket: Path | None = None

    async def start(self, socket: Path) -> None:
        """Listens for proxies of this host: who may open the socket may say by its node id which Gateway it serves. Nothing is
        sent before `open`."""
        claim(socket)
        server = self._listener(lambda request, context: self._named(request.node.id), OPTIONS)
        server.add_insecure_port(f"unix:{socket}")
        socket.chmod(0o600)
        self._socket = socket
        await server.start()

    async def start_tls(
        self,
        address: str,
        credentials: Callable[[], Credentials],
        gateway_of_uid: Callable[[str], Key | None],
        heard: replicas.OnReport = lambda replica, report: False,
        observed: observing.OnReport = lambda report, passed_on: False,
        ages: replicas.Ages | None = None,
    ) -> int:
        """Listens for proxies elsewhere, which show a certificate with their Gateway's UID; what they say of themselves does
        not count. And for other replicas, whose reports go to `heard`. What proxies have seen on the wire goes to `observed`.
        The answer is the port. Raises RuntimeError if the address cannot be bound."""
        server = self._listener(lambda request, context: gateway_of_uid(peer_uid(context)), REMOTE_OPTIONS)
        server.add_generic_rpc_handlers((replicas.handler(heard, ages), observing.handler(gateway_of_uid, observed)))
        port = server.add_secure_port(address, server_credentials(credentials))
        await server.start()
        return port

    async def hand_over(self) -> None:
        """Stops listening and ends the streams, so that proxies connect to another replica. `start_tls` begins again."""
        for known in self._gateways.values():
            for stream in known.streams:
                stream.closed = True
            known.wake()
        stopping, self._grpc = self._grpc, []
        await asyncio.gather(*(server.stop(GRACE) for server in stopping))

    @property
    def listening(self) -> bool:
        return bool(self._grpc)

    def _named(self, path: str) -> Key | None:
        return next((key for key in self._gateways if key.path == path), None)

    def _listener(self, identify: Identify, options: tuple[tuple[str, int], ...]) -> grpc.aio.Server:
        """Creates one gRPC server for each way in, so that no client of one is identified by the rules of another."""

        async def serve(requests: AsyncIterator[DeltaDiscoveryRequest], context: Context) -> None:
            await self._serve(identify, requests, context)

        server = grpc.aio.server(options=options)
        handler: grpc.RpcMethodHandler[DeltaDiscoveryRequest, bytes] = grpc.stream_stream_rpc_method_handler(
            serve, request_deserializer=DeltaDiscoveryRequest.FromString, response_serializer=None
        )
        service, method = "envoy.service.discovery.v3.AggregatedDiscoveryService", "DeltaAggregatedResources"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._grpc.append(server)
        return server

    def open(self) -> None:
        """Begins to serve: everything has been read once and every Gateway has had its first update. Sooner, a proxy that
        reconnects would be told to drop what it has."""
        self._opened.set()

    async def close(self) -> None:
        """Ends the streams without sending anything: a proxy keeps serving what it has."""
        self._closed = True
        self._opened.set()
        for gateway in list(self._gateways):
            self.remove(gateway)
        await asyncio.gather(*(server.stop(GRACE) for server in self._grpc))
        if self._socket is not None:
            release(self._socket)

    def add(self, gateway: Key) -> Cache:
        """Adds a Gateway, which may have nothing to send yet, and returns its cache."""
        if gateway not in self._gateways:
            self._gateways[gateway] = _Gateway()
        return self._gateways[gateway].cache

    def update(self, gateway: Key, changes: Changes) -> None:
        """Applies what has changed; for a new Gateway that is everything."""
        if self.add(gateway).apply(changes):
            self._gateways[gateway].wake()

    def remove(self, gateway: Key) -> None:
        """Removes a Gateway. Its proxies are disconnected, not emptied: their runtime ends them."""
        if known := self._gateways.pop(gateway, None):
            for stream in known.streams:
                stream.closed = True
            known.wake()

    @property
    def behind(self) -> bool:
        """Returns whether some proxy has more clusters before it than it takes in at once."""
        return any(stream.session.behind for known in self._gateways.values() for stream in known.streams)

    @property
    def expecting(self) -> bool:
        """Returns whether some proxy has yet to answer to what was sent."""
        return any(stream.session.expecting for known in self._gateways.values() for stream in known.streams)

    def busy(self, gateway: Key) -> bool:
        """Returns whether every proxy of the Gateway has yet to answer the last route table."""
        known, now = self._gateways.get(gateway), self._clock()
        return known is not None and bool(known.streams) and all(s.session.busy(now) for s in known.streams)

    def synced(self, gateway: Key) -> bool:
        """Returns whether there is a proxy, and each has acknowledged everything."""
        known = self._gateways.get(gateway)
        return known is not None and known.synced

    def state(self, gateway: Key) -> SyncState:
        known = self._gateways.get(gateway)
        sessions = [stream.session for stream in known.streams] if known else []
        return SyncState(len(sessions), self.synced(gateway), bool(sessions) and all(session.decided for session in sessions))

    async def _serve(self, identify: Identify, requests: AsyncIterator[DeltaDiscoveryRequest], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None:
            return
        self.waiting += 1
        try:
            await self._opened.wait()
        finally:
            self.waiting -= 1
        gateway = identify(first, context)
        known = self._gateways.get(gateway) if gateway else None
        if self._closed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
            return
        if gateway is None or known is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no Gateway for node {first.node.id!r}")
            return
        stream = _Stream(known.cache)
        known.streams.add(stream)
        self._observer.connected(gateway)
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._write(stream, context))
                reader = tasks.create_task(self._read(gateway, known, stream, first, requests))
                await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
                reader.cancel()
                writer.cancel()
        finally:
            known.streams.discard(stream)
            self._observer.disconnected(gateway)

    async def _read(
        self,
        gateway: Key,
        known: _Gateway,
        stream: _Stream,
        first: DeltaDiscoveryRequest,
        requests: AsyncIterator[DeltaDiscoveryRequest],
    ) -> None:
        self._receive(gateway, known, stream, first)
        async for request in requests:
            self._receive(gateway, known, stream, request)

    def _receive(self, gateway: Key, known: _Gateway, stream: _Stream, request: DeltaDiscoveryRequest) -> None:
        self.heard += 1
        known.unsure.add(stream)
        for event in stream.session.receive(request, self._clock()):
            match event:
                case Acked():
                    self.traffic[event.type_url].acks += 1
                    self._observer.acked(gateway, event)
                case Nacked():
                    self.traffic[event.type_url].nacks += 1
                    self._observer.nacked(gateway, event)
        stream.wake.set()

    async def _write(self, stream: _Stream, context: Context) -> None:
        while not stream.closed:
            stream.wake.clear()
            while response := stream.session.poll(self._clock()):
                data = encode(response)
                self._count(response, len(data))
                try:
                    await context.write(data)
                except grpc.aio.BaseError:  # the proxy has gone
                    return
            deadline = stream.session.deadline()
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self._clock())):
                    await stream.wake.wait()
            except TimeoutError:
                continue

    def _count(self, response: Response, size: int) -> None:
        traffic = self.traffic[response.type_url]
        traffic.responses += 1
        traffic.resources += len(response.resources)
        traffic.removals += len(response.removed)
        traffic.bytes += size
