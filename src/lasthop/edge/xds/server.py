"""Serves ADS. This is the only xDS module with gRPC, sockets, tasks and the clock.

    controller ──update──> Cache ──wake──> writer ──DeltaDiscoveryResponse──> Envoy
        ^───────── Observer <──events── reader <──DeltaDiscoveryRequest────────┘

Each stream has one reader and one writer. The writer polls its session until there is nothing to send, then sleeps until an
update, a request or the session's deadline wakes it.
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
from google.protobuf.message import DecodeError

from lasthop.base.api.meta import Key
from lasthop.edge.observe.foreign import NO_PARTS, GatewayParts
from lasthop.edge.slices import step_by_step
from lasthop.edge.xds import observing, replicas
from lasthop.edge.xds.budget import (
    MAX_REQUEST,
    MAX_STREAMS,
    REFUSAL,
    STREAM,
    Allotment,
    OverBudget,
    check_excess,
    check_request,
    cost,
)
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.credentials import MutualTls, peer_uid, server_credentials
from lasthop.edge.xds.response import Response, encode
from lasthop.edge.xds.session import Acked, Nacked, XdsSession, names_in
from lasthop.edge.xds.unix_socket import claim, release
from lasthop.engine.outputs.envoy.resource import CLUSTER, TYPES, Changes

GRACE: Final = 1.0
"""Seconds for streams to end by themselves, which takes one turn of the event loop unless a proxy does not read."""

MAX_REFUSED_READS: Final = 8
"""Maximum clients at a time that are refused only after their first request was read."""

OPTIONS: Final = (("grpc.max_receive_message_length", MAX_REQUEST),)
REMOTE_OPTIONS: Final = (
    *OPTIONS,
    # A node that dies does not close its connections. Without pings its proxy would count as connected for hours.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Envoy pings every 30 s, even when idle. By default gRPC treats that as abuse and disconnects.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A proxy stays with its replica as long as the connection lasts, so after restarts one replica might have all of them. A
    # new connection goes to any replica, and certificates are verified again. gRPC varies the age by a tenth.
    ("grpc.max_connection_age_ms", 15 * 60 * 1000),
    ("grpc.max_connection_age_grace_ms", 5_000),
    # Another process on the same address would receive some of the proxies' connections.
    ("grpc.so_reuseport", 0),
)

Context = grpc.aio.ServicerContext[bytes, bytes]
Identify = Callable[[Context], Key | None]
"""Returns the Gateway in a client's certificate; None if it is unknown."""


class StreamObserver(Protocol):
    """Receives the events of proxies. Called on the event loop; must not block."""

    def connected(self, gateway: Key) -> None: ...
    def disconnected(self, gateway: Key) -> None: ...
    def acked(self, gateway: Key, event: Acked) -> None: ...
    def nacked(self, gateway: Key, event: Nacked) -> None: ...
    def over_budget(self, gateway: Key, why: str) -> None: ...


class TypeCounts(msgspec.Struct):
    """Counts of one type since the start."""

    responses: int = 0
    resources: int = 0
    removals: int = 0
    bytes: int = 0
    acks: int = 0
    nacks: int = 0


class SyncState(msgspec.Struct, frozen=True):
    proxies: int
    synced: bool
    """At least one proxy is connected, and each has acknowledged every resource."""
    decided: bool
    """At least one proxy is connected, and each has acknowledged or rejected every resource. Rejections are reported
    elsewhere."""


class _Stream:
    def __init__(self, cache: Cache) -> None:
        self.session = XdsSession(cache)
        self.wake = asyncio.Event()
        self.closed = False
        self.in_use = asyncio.Lock()
        """Held while the session processes a request, which happens in steps."""


class _Gateway:
    def __init__(self) -> None:
        self.cache = Cache()
        self.streams: set[_Stream] = set()
        self.unsure: set[_Stream] = set()
        """Streams that may not be synced. A synced stream stays so until a request or a change of the cache."""
        self.allotment = Allotment()
        self.admitted = 0
        """Admitted streams, including those whose first request has not arrived."""
        self._generation = self.cache.generation

    def wake(self) -> None:
        for stream in self.streams:
            stream.wake.set()

    @property
    def synced(self) -> bool:
        """Returns whether every stream is synced. It runs at every acknowledgement, so it does not check a synced stream
        again."""
        if self._generation != self.cache.generation:
            self.unsure, self._generation = set(self.streams), self.cache.generation
        while self.unsure:
            stream = self.unsure.pop()
            if stream in self.streams and not stream.session.synced:
                self.unsure.add(stream)
                return False
        return bool(self.streams)


class XdsServer:
    def __init__(self, observer: StreamObserver, *, clock: Callable[[], float] = time.time) -> None:
        self.traffic = {type_url: TypeCounts() for type_url in TYPES}
        self._observer = observer
        self._clock = clock
        self._gateways: dict[Key, _Gateway] = {}
        self._opened = asyncio.Event()
        self.heard = 0
        """Requests received since the start."""
        self.waiting = 0
        """Proxies that connected before `open`."""
        self.reports: observing.Reports | None = None
        self._refused_reads = 0
        self._closed = False
        self._grpc: list[grpc.aio.Server] = []
        self._socket: Path | None = None

    async def start(self, socket: Path) -> None:
        """Listens for proxies on this host. They name their Gateway by node id, because only the socket's owner can connect.
        Sends nothing before `open`."""
        claim(socket)
        server = self._listener(None, OPTIONS)
        server.add_insecure_port(f"unix:{socket}")
        socket.chmod(0o600)
        self._socket = socket
        await server.start()

    async def start_tls(
        self,
        address: str,
        credentials: Callable[[], MutualTls],
        gateway_of_uid: Callable[[str], Key | None],
        heard: replicas.OnReport = lambda replica, report: False,
        observed: observing.OnReport = observing.ignored,
        parts: GatewayParts = NO_PARTS,
        ages: replicas.ContactAges | None = None,
    ) -> int:
        """Listens for remote proxies and other replicas, and returns the port. A proxy's certificate contains its Gateway's
        UID; its node id does not count. Reports of replicas go to `heard`. Observations of proxies go to `observed`, limited
        to `parts`. Raises RuntimeError if the address cannot be bound."""
        server = self._listener(lambda context: gateway_of_uid(peer_uid(context)), REMOTE_OPTIONS)
        self.reports = observing.Reports(gateway_of_uid, parts, observed, self._hops, self._observer.over_budget)
        server.add_generic_rpc_handlers((replicas.handler(heard, ages), self.reports.handler()))
        port = server.add_secure_port(address, server_credentials(credentials))
        await server.start()
        return port

    async def hand_over(self) -> None:
        """Stops listening and ends the streams, so that proxies connect to another replica. `start_tls` starts again."""
        for entry in self._gateways.values():
            for stream in entry.streams:
                stream.closed = True
            entry.wake()
        stopping, self._grpc = self._grpc, []
        await asyncio.gather(*(server.stop(GRACE) for server in stopping))

    @property
    def listening(self) -> bool:
        return bool(self._grpc)

    def _hops(self, gateway: Key) -> int:
        entry = self._gateways.get(gateway)
        return entry.cache.count(CLUSTER) if entry else 0

    def _listener(self, identify: Identify | None, options: tuple[tuple[str, int], ...]) -> grpc.aio.Server:
        """Creates one gRPC server per entry, so that each client is identified by the rules of its own entry. Without
        `identify` a client names its Gateway by node id."""

        async def serve(messages: AsyncIterator[bytes], context: Context) -> None:
            await self._serve(identify, messages, context)

        server = grpc.aio.server(options=options)
        # Without a deserializer, because gRPC would decode requests before the size check.
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(serve)
        service, method = "envoy.service.discovery.v3.AggregatedDiscoveryService", "DeltaAggregatedResources"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._grpc.append(server)
        return server

    def open(self) -> None:
        """Starts to serve. Call it once everything has been read and every Gateway has had its first update. Before that, a
        reconnecting proxy would receive removals of its resources."""
        self._opened.set()

    async def close(self) -> None:
        """Ends the streams without sending anything, so that proxies keep serving their configuration."""
        self._closed = True
        self._opened.set()
        for gateway in list(self._gateways):
            self.remove(gateway)
        await asyncio.gather(*(server.stop(GRACE) for server in self._grpc))
        if self._socket is not None:
            release(self._socket)

    def add(self, gateway: Key) -> Cache:
        """Adds a Gateway, which may have no resources yet, and returns its cache."""
        if gateway not in self._gateways:
            self._gateways[gateway] = _Gateway()
        return self._gateways[gateway].cache

    def update(self, gateway: Key, changes: Changes) -> None:
        """Applies changes; for a new Gateway these are all its resources."""
        if self.add(gateway).apply(changes):
            self._gateways[gateway].wake()

    def remove(self, gateway: Key) -> None:
        """Removes a Gateway. Its proxies are disconnected but keep their configuration; their runtime stops them."""
        if entry := self._gateways.pop(gateway, None):
            for stream in entry.streams:
                stream.closed = True
            entry.wake()

    @property
    def behind(self) -> bool:
        """Returns whether any proxy lags by more clusters than one response has."""
        return any(stream.session.behind for entry in self._gateways.values() for stream in entry.streams)

    @property
    def expecting(self) -> bool:
        """Returns whether any proxy has an unanswered response."""
        return any(stream.session.expecting for entry in self._gateways.values() for stream in entry.streams)

    def busy(self, gateway: Key) -> bool:
        """Returns whether no proxy of the Gateway has answered the last route table yet."""
        entry, now = self._gateways.get(gateway), self._clock()
        return entry is not None and bool(entry.streams) and all(s.session.busy(now) for s in entry.streams)

    def synced(self, gateway: Key) -> bool:
        """Returns whether a proxy is connected, and every proxy has acknowledged everything."""
        entry = self._gateways.get(gateway)
        return entry is not None and entry.synced

    def state(self, gateway: Key) -> SyncState:
        entry = self._gateways.get(gateway)
        sessions = [stream.session for stream in entry.streams] if entry else []
        return SyncState(len(sessions), self.synced(gateway), bool(sessions) and all(session.decided for session in sessions))

    async def _serve(self, identify: Identify | None, messages: AsyncIterator[bytes], context: Context) -> None:
        first, node_id = None, ""
        if identify is None:
            if (first := await anext(aiter(messages), None)) is None:
                return
            node_id = _node(first)
        self.waiting += 1
        try:
            await self._opened.wait()
        finally:
            self.waiting -= 1
        gateway = identify(context) if identify else next((key for key in self._gateways if key.path == node_id), None)
        entry = self._gateways.get(gateway) if gateway else None
        if self._closed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
            return
        if gateway is None or entry is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no Gateway for {f'node {node_id!r}' if node_id else 'this certificate'}"
            )
            return
        code, reason = grpc.StatusCode.OK, ""
        try:
            await self._admitted(gateway, entry, first, messages, context)
        except* OverBudget as group:
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, str(_first_exception(group))
        except* DecodeError:
            code, reason = grpc.StatusCode.INVALID_ARGUMENT, "the message is not a DeltaDiscoveryRequest"
        if reason:
            self._observer.over_budget(gateway, reason)
            await context.abort(code, reason)

    async def _read_refused(self, first: bytes | None, messages: AsyncIterator[bytes]) -> None:
        """Reads one request of a refused client, so that the client receives the reason. Some clients that are still sending
        interpret the response as a local error. The number is limited, because refused requests should stay unread."""
        if first is None and self._refused_reads < MAX_REFUSED_READS:
            self._refused_reads += 1
            try:
                async with asyncio.timeout(GRACE):
                    await anext(aiter(messages), None)
            except TimeoutError:
                pass
            finally:
                self._refused_reads -= 1

    async def _admitted(
        self, gateway: Key, entry: _Gateway, first: bytes | None, messages: AsyncIterator[bytes], context: Context
    ) -> None:
        """Serves a stream of a Gateway. If the certificate identified the Gateway, nothing has been read from the stream
        yet."""
        if entry.admitted >= MAX_STREAMS:
            await self._read_refused(first, messages)
            raise OverBudget(f"{MAX_STREAMS} streams of this Gateway are open, which is the limit")
        entry.admitted += 1
        try:
            await asyncio.sleep(entry.allotment.wait(STREAM, self._clock()))
            if first is None and (first := await anext(aiter(messages), None)) is None:
                return
            stream = _Stream(entry.cache)
            entry.streams.add(stream)
            self._observer.connected(gateway)
            try:
                async with asyncio.TaskGroup() as tasks:
                    writer = tasks.create_task(self._write(stream, context))
                    reader = tasks.create_task(self._read(gateway, entry, stream, first, messages))
                    await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
                    reader.cancel()
                    writer.cancel()
            finally:
                entry.streams.discard(stream)
                self._observer.disconnected(gateway)
        finally:
            entry.admitted -= 1

    async def _read(
        self, gateway: Key, entry: _Gateway, stream: _Stream, first: bytes, messages: AsyncIterator[bytes]
    ) -> None:
        await self._receive(gateway, entry, stream, first)
        async for message in messages:
            await self._receive(gateway, entry, stream, message)

    async def _receive(self, gateway: Key, entry: _Gateway, stream: _Stream, message: bytes) -> None:
        """Processes a request within the Gateway's budget, a few milliseconds at a time."""
        check_request(len(message), entry.cache.most)
        entry.allotment.admit(len(message))
        entry.allotment.pending += len(message)
        try:
            if wait := entry.allotment.wait(cost(len(message)), self._clock()):
                await asyncio.sleep(wait)
            self.heard += 1
            async with stream.in_use:
                entry.unsure.add(stream)
                request = _decoded(message)
                events = await step_by_step(stream.session.receiving(request, self._clock()))
        finally:
            entry.allotment.pending -= len(message)
        entry.unsure.add(stream)
        if names_in(request) and stream.session.excess:
            check_excess(sum(open_stream.session.excess for open_stream in entry.streams))
        for event in events:
            match event:
                case Acked():
                    self.traffic[event.type_url].acks += 1
                    self._observer.acked(gateway, event)
                case Nacked():
                    self.traffic[event.type_url].nacks += 1
                    self._observer.nacked(gateway, event)
                    await asyncio.sleep(entry.allotment.wait(REFUSAL, self._clock()))
        stream.wake.set()

    async def _write(self, stream: _Stream, context: Context) -> None:
        while not stream.closed:
            stream.wake.clear()
            while response := await self._next(stream):
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

    async def _next(self, stream: _Stream) -> Response | None:
        async with stream.in_use:
            return stream.session.poll(self._clock())

    def _count(self, response: Response, size: int) -> None:
        traffic = self.traffic[response.type_url]
        traffic.responses += 1
        traffic.resources += len(response.resources)
        traffic.removals += len(response.removed)
        traffic.bytes += size


def _decoded(message: bytes) -> DeltaDiscoveryRequest:
    return DeltaDiscoveryRequest.FromString(message)


def _node(message: bytes) -> str:
    try:
        return _decoded(message).node.id
    except DecodeError:
        return ""


def _first_exception(group: BaseException) -> BaseException:
    """Returns the first exception of a group of groups."""
    return _first_exception(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group
