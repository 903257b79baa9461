"""Calls Envoy's admin API over its unix socket, and reads the counters of hops and endpoints."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterable, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from socket import socket as Socket
from typing import Final, cast
from urllib.parse import urlencode

import msgspec

from lasthop.base.api.addresses import with_port
from lasthop.base.api.documents import Json
from lasthop.base.text import log_levels
from lasthop.edge.observe.evidence import Counts, EndpointCounts, EndpointsCounted, HopCounts
from lasthop.engine.outputs.envoy.statistics import HOP_STATS
from lasthop.engine.plan.upstream import Connection, Hop


class AdminUnavailable(Exception):
    """Envoy does not answer on its admin socket: it is starting, has exited, or hangs."""


class ActiveTraffic(msgspec.Struct, frozen=True):
    connections: int
    """Open client connections, including idle ones."""
    busy: int
    """Requests in flight, and client connections other than HTTP."""


LOG_LEVEL: Final = "warning"
"""Envoy's log level at start-up."""
COMPONENT_LEVELS: Final = {"config": "error"}


class Admin:
    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def __repr__(self) -> str:
        return f"Admin({self.socket})"

    async def state(self) -> str:
        """Returns `LIVE`, `PRE_INITIALIZING`, `INITIALIZING`, `DRAINING`, or an empty string if Envoy does not answer."""
        try:
            return (await self._call("GET", "/ready", limit=2)).decode(errors="replace").strip()
        except AdminUnavailable:
            return ""

    async def ready(self) -> bool:
        """Returns whether Envoy has received its first configuration and serves."""
        return await self.state() == "LIVE"

    async def stats(self, pattern: str) -> dict[str, int]:
        """Returns the counters and gauges whose names match the regular expression."""
        body = await self._call("GET", "/stats", {"format": "json", "type": "All", "filter": pattern})
        # For a thousand clusters this is some megabytes, so it is parsed outside the event loop.
        return await asyncio.to_thread(_values, body)

    async def prometheus(self) -> bytes:
        """Returns Envoy's own metrics that are in use, in Prometheus' text format."""
        return await self._call("GET", "/stats/prometheus", {"usedonly": ""})

    async def config_dump(self) -> bytes:
        """Returns Envoy's whole configuration, including endpoints, as JSON. Envoy redacts private keys."""
        return await self._call("GET", "/config_dump", {"include_eds": ""}, limit=60)

    async def plaintext_hops(self) -> list[Hop]:
        """Returns the hops whose clusters have no TLS."""
        body = await self._call("GET", "/config_dump", {"resource": "dynamic_active_clusters"}, limit=60)
        return await asyncio.to_thread(_plaintext_hops, body)

    async def traffic(self) -> ActiveTraffic:
        stats = await self.stats(r"^(listener|http)\..*\.downstream_(cx|rq)_active$")
        connections = http = requests = 0
        for name, value in stats.items():
            if name.startswith(("listener.admin.", "http.admin.")) or ".worker_" in name:
                continue
            if name.startswith("listener."):
                connections += value
            elif name.endswith("_cx_active"):
                http += value
            else:
                requests += value
        return ActiveTraffic(connections, requests + max(0, connections - http))

    async def hop_counts(self) -> Counts:
        """Returns Envoy's counters of each hop in use."""
        body = await self._call("GET", "/stats", {"format": "json", "usedonly": "", "filter": HOP_STATS})
        return await asyncio.to_thread(hop_counts, body)

    async def endpoint_counts(self, hops: Iterable[Hop]) -> EndpointsCounted:
        """Returns Envoy's counters of each endpoint of these hops."""
        names = "|".join(re.escape(hop.name) for hop in hops)
        body = await self._call("GET", "/clusters", {"format": "json", "filter": f"^({names})$"})
        return await asyncio.to_thread(endpoint_counts, body)

    async def set_runtime(self, values: Mapping[str, int]) -> None:
        """Sets runtime keys until Envoy exits."""
        await self._call("POST", "/runtime_modify", {key: str(value) for key, value in values.items()})

    async def log_level(self) -> str:
        """Returns the lowest log level of any component."""
        body = await self._call("POST", "/logging")
        levels = {line.rpartition(": ")[2].strip() for line in body.decode(errors="replace").splitlines()}
        return next((level for level in log_levels.ENVOY if level in levels), "")

    async def set_log_level(self, level: str) -> None:
        """Sets the level of all components until Envoy exits. The start-up level also restores the levels of quieter
        components."""
        await self._call("POST", "/logging", {"level": level})
        for name, quieter in COMPONENT_LEVELS.items() if level == LOG_LEVEL else ():
            await self._call("POST", "/logging", {name: quieter})

    async def listeners(self) -> dict[str, str]:
        """Returns the address of each listener by listener name."""
        body = msgspec.json.decode(await self._call("GET", "/listeners", {"format": "json"}))
        return {listener["name"]: _address(listener["local_address"]) for listener in body.get("listener_statuses", ())}

    async def fail_health_check(self) -> None:
        """Makes Envoy request, with every further HTTP response, that clients close their connections."""
        await self._call("POST", "/healthcheck/fail")

    async def drain_listeners(self) -> None:
        """Stops accepting connections at once. Open connections continue."""
        await self._call("POST", "/drain_listeners")

    async def _call(self, method: str, path: str, query: dict[str, str] | None = None, limit: float = 10) -> bytes:
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            async with asyncio.timeout(limit):
                status, body = await request(self.socket, method, target)
        except (HTTPException, TimeoutError, OSError) as error:
            raise AdminUnavailable(f"Envoy does not respond on {self.socket}: {str(error) or 'timeout'}") from error
        if status != 200 and path != "/ready":
            raise AdminUnavailable(f"Envoy answers {path} with {status}: {body[:200].decode(errors='replace')}")
        return body


async def request(socket: Path, method: str, target: str) -> tuple[int, bytes]:
    """Returns status and body of one request to Envoy's admin API. Raises OSError or `HTTPException`.

    `http.client` reads the response. aiohttp would add 9 MB and 0.2 s to `lasthop proxy`, which needs it for nothing else.
    """
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0"
        writer.write(f"{head}\r\n\r\n".encode())
        received = await reader.read()
        if b"\r\n\r\n" not in received:
            raise HTTPException("the response ended early")
        response = HTTPResponse(cast(Socket, _ReceivedSocket(received)), method=method)
        response.begin()
        return response.status, response.read()
    finally:
        writer.close()


class _ReceivedSocket:
    """Replaces the socket from which `HTTPResponse` reads. Contains all bytes received until Envoy closed the connection."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._received)


class _Cluster(msgspec.Struct):
    name: str
    transport_socket: Json | None = None


class _ActiveCluster(msgspec.Struct):
    cluster: _Cluster


class _ActiveClusters(msgspec.Struct):
    configs: list[_ActiveCluster] = []


def _plaintext_hops(body: bytes) -> list[Hop]:
    clusters = (cluster.cluster for cluster in msgspec.json.decode(body, type=_ActiveClusters).configs)
    return [hop for cluster in clusters if cluster.transport_socket is None and (hop := Hop.parse(cluster.name))]


def _values(body: bytes) -> dict[str, int]:
    stats = msgspec.json.decode(body)["stats"]
    return {stat["name"]: stat["value"] for stat in stats if "value" in stat}


def _address(message: Json) -> str:
    if socket := message.get("socket_address"):
        return with_port(socket["address"], socket["port_value"])
    return str(message.get("pipe", {}).get("path", ""))


_SSL: Final = "ssl."


class _Stat(msgspec.Struct, frozen=True):
    name: str = ""
    value: int | str = 0


class _Stats(msgspec.Struct, frozen=True):
    stats: list[_Stat] = []


class _SocketAddress(msgspec.Struct, frozen=True):
    address: str = ""
    port_value: int = 0


class _Address(msgspec.Struct, frozen=True):
    socket_address: _SocketAddress = _SocketAddress()


class _HealthStatus(msgspec.Struct, frozen=True):
    failed_outlier_check: bool = False


class _Host(msgspec.Struct, frozen=True):
    address: _Address = _Address()
    health_status: _HealthStatus = _HealthStatus()
    stats: list[_Stat] = []


class _ClusterStatus(msgspec.Struct, frozen=True):
    observability_name: str = ""
    host_statuses: list[_Host] = []


class _ClusterStatuses(msgspec.Struct, frozen=True):
    cluster_statuses: list[_ClusterStatus] = []


def hop_counts(body: bytes) -> Counts:
    """Parses a response of `/stats?format=json`, filtered by `engine/outputs/envoy/statistics.py`."""
    by_connection: dict[Connection, dict[str, int]] = {}
    for stat in msgspec.json.decode(body, type=_Stats).stats:
        if parsed := Connection.parse_stat(stat.name):
            connection, counter = parsed
            by_connection.setdefault(connection, {})[counter] = int(stat.value)
    return {connection: _counts(connection.hop, values) for connection, values in by_connection.items()}


def _counts(hop: Hop, values: dict[str, int]) -> HopCounts:
    tls = {name.removeprefix(_SSL): value for name, value in values.items() if name.startswith(_SSL)}
    handshakes = tls.pop("handshake", 0)
    connections, failures, open_connections = (
        values.get(f"upstream_cx_{name}", 0) for name in ("total", "connect_fail", "active")
    )
    failed = {name: value for name, value in tls.items() if value}
    timeouts, ejected = values.get("upstream_cx_connect_timeout", 0), values.get("outlier_detection.ejections_active", 0)
    if not hop.protocol.http:
        return HopCounts(
            connections, failures, handshakes, failed, open_connections, connections - failures, timeouts, ejected
        )
    active, requests = (values.get(f"upstream_rq_{name}", 0) for name in ("active", "total"))
    return HopCounts(connections, failures, handshakes, failed, active, requests, timeouts, ejected)


def endpoint_counts(body: bytes) -> EndpointsCounted:
    """Parses a response of `/clusters?format=json`."""
    by_connection: EndpointsCounted = {}
    for cluster in msgspec.json.decode(body, type=_ClusterStatuses).cluster_statuses:
        if connection := Connection.parse(cluster.observability_name):
            addresses = ((host.address.socket_address, host) for host in cluster.host_statuses)
            by_connection[connection] = {with_port(at.address, at.port_value): _endpoint(host) for at, host in addresses}
    return by_connection


def _endpoint(host: _Host) -> EndpointCounts:
    values = {stat.name: int(stat.value) for stat in host.stats}
    connections, failures, answers = (values.get(name, 0) for name in ("cx_total", "cx_connect_fail", "rq_success"))
    return EndpointCounts(connections, failures, answers, host.health_status.failed_outlier_check)
