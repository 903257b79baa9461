"""Reads Envoy's counters: of each hop, and of its endpoints."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.addresses import with_port
from lasthop.edge.observe.evidence import Counts, EndpointCounts, EndpointsCounted, HopCounts
from lasthop.engine.plan.upstream import Connection, Hop

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


class _Cluster(msgspec.Struct, frozen=True):
    observability_name: str = ""
    host_statuses: list[_Host] = []


class _Clusters(msgspec.Struct, frozen=True):
    cluster_statuses: list[_Cluster] = []


def hop_counts(body: bytes) -> Counts:
    """Reads an answer of `/stats?format=json`, filtered by `engine/outputs/envoy/statistics.py`."""
    found: dict[Connection, dict[str, int]] = {}
    for stat in msgspec.json.decode(body, type=_Stats).stats:
        if parsed := Connection.parse_stat(stat.name):
            connection, counted = parsed
            found.setdefault(connection, {})[counted] = int(stat.value)
    return {connection: _counts(connection.hop, values) for connection, values in found.items()}


def _counts(hop: Hop, values: dict[str, int]) -> HopCounts:
    tls = {name.removeprefix(_SSL): value for name, value in values.items() if name.startswith(_SSL)}
    handshakes = tls.pop("handshake", 0)
    connections, failures, open_ones = (values.get(f"upstream_cx_{name}", 0) for name in ("total", "connect_fail", "active"))
    failed = {name: value for name, value in tls.items() if value}
    late, ejected = values.get("upstream_cx_connect_timeout", 0), values.get("outlier_detection.ejections_active", 0)
    if not hop.protocol.http:
        return HopCounts(connections, failures, handshakes, failed, open_ones, connections - failures, late, ejected)
    active, requests = (values.get(f"upstream_rq_{name}", 0) for name in ("active", "total"))
    return HopCounts(connections, failures, handshakes, failed, active, requests, late, ejected)


def endpoint_counts(body: bytes) -> EndpointsCounted:
    """Reads an answer of `/clusters?format=json`."""
    found: EndpointsCounted = {}
    for cluster in msgspec.json.decode(body, type=_Clusters).cluster_statuses:
        if connection := Connection.parse(cluster.observability_name):
            places = ((host.address.socket_address, host) for host in cluster.host_statuses)
            found[connection] = {with_port(at.address, at.port_value): _endpoint(host) for at, host in places}
    return found


def _endpoint(host: _Host) -> EndpointCounts:
    values = {stat.name: int(stat.value) for stat in host.stats}
    connections, failures, answers = (values.get(name, 0) for name in ("cx_total", "cx_connect_fail", "rq_success"))
    return EndpointCounts(connections, failures, answers, host.health_status.failed_outlier_check)
