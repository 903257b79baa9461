"""Streams of connections and datagrams: one separately encoded filter chain per server name (SNI) of a listener.

The chain's name contains the hash of the TLS to its backends. So a changed policy gives a new chain, and Envoy ends the
connections of the old one within its drain time; all other chains of the port stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.extensions.filters.udp.udp_proxy.v3 import route_pb2, udp_proxy_pb2
from envoy.extensions.matching.common_inputs.network.v3 import network_inputs_pb2
from envoy.extensions.matching.input_matchers.consistent_hashing.v3 import consistent_hashing_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.access_log import stream_log, stream_sample_log
from lasthop.engine.outputs.envoy.encode import encode, field, packed, seconds
from lasthop.engine.outputs.envoy.listeners import downstream_tls, listener_name
from lasthop.engine.outputs.envoy.quarantine import part_quarantined
from lasthop.engine.outputs.envoy.resource import LISTENER, Resource, content_hash
from lasthop.engine.outputs.envoy.retries import try_again
from lasthop.engine.outputs.envoy.route_messages import REFUSED
from lasthop.engine.outputs.envoy.tls import upstream_transport_socket
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.routing import Stream, WeightedBackend
from lasthop.engine.plan.tls import BackendTLS, HopTLS
from lasthop.engine.resolve.gateways.listeners import table_listener
from lasthop.engine.resolve.gateways.profiles import access_log_mode, connect_rules, http_rules
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.routing.attachment import LISTENER_STREAMS
from lasthop.engine.resolve.routing.streams import owner, stream
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output

LOG_INTERVAL: Final = 10.0
"""Seconds between two log lines of a long-lived connection."""
TCP_PROXY: Final = "envoy.filters.network.tcp_proxy"
UDP_PROXY: Final = "envoy.filters.udp_listener.udp_proxy"

MAX_WAIVED_CONNECTION_SECONDS: Final = 86400.0
"""Maximum age in seconds of connections to a backend whose waiver has an end. If no controller runs then, Envoy removes the
cluster but not open connections; it supports only a maximum age for them, no end time. An age that shrinks with the remaining
time would give a new chain, and end all connections, at every step."""


class EncodedStream(msgspec.Struct, frozen=True):
    listener: str
    """The name of its Envoy listener."""
    part: str
    body: bytes
    """The bytes to append to the listener; empty for datagrams without a route."""
    digest: str
    """Empty for the stand-in of a refused stream, which cannot be at fault."""
    owner: Key | None = None
    """The route of the stream."""


@query
def encoded_stream(g: Graph, gateway: Key, table: str, hostname: str) -> EncodedStream | None:
    """Returns one encoded stream. A stream that Envoy refused closes its connections instead, so that no other stream takes
    them."""
    listener = table_listener(g, gateway, table)
    if listener is None:
        return None
    name = listener_name(gateway, listener.port, listener.transport)
    part = f"{name}#{table}/{hostname or '*'}"
    body, route = _body(g, gateway, listener, stream(g, gateway, table, hostname)), owner(g, gateway, table, hostname)
    digest = content_hash(body)
    if part_quarantined(g, LISTENER, part, digest):
        body, digest = _body(g, gateway, listener, Stream(hostname)), ""
    return EncodedStream(name, part, body, digest, route)


@query
def stream_or_closed(g: Graph, gateway: Key, table: str, hostname: str) -> EncodedStream | None:
    """Encodes a stream; one whose query crashed closes its connections, too."""
    encoded, listener = encoded_stream.attempt(g, gateway, table, hostname), table_listener.attempt(g, gateway, table)
    if not isinstance(encoded, Crash):
        return encoded
    if listener is None or isinstance(listener, Crash):
        return None
    name = listener_name(gateway, listener.port, listener.transport)
    return EncodedStream(name, f"{name}#{table}/{hostname or '*'}", _body(g, gateway, listener, Stream(hostname)), "")


def _body(g: Graph, gateway: Key, listener: ListenerPlan, plan: Stream) -> bytes:
    if listener.transport == "UDP":
        return field(listener_pb2.Listener.LISTENER_FILTERS_FIELD_NUMBER, encode(_datagrams(plan))) if plan.backends else b""
    return field(listener_pb2.Listener.FILTER_CHAINS_FIELD_NUMBER, encode(_chain(g, gateway, listener, plan)))


def _chain(g: Graph, gateway: Key, listener: ListenerPlan, plan: Stream) -> listener_components_pb2.FilterChain:
    chain = listener_components_pb2.FilterChain(name=f"{listener.table}/{plan.hostname or '*'}")
    if listener.protocol == "TLS":
        # Only TLS may pass, especially to the backends of a passthrough listener.
        chain.filter_chain_match.transport_protocol = "tls"
        if plan.hostname:
            chain.filter_chain_match.server_names.append(plan.hostname)
    if not plan.backends:
        # No filters: the connection is closed.
        return chain
    if listener.protocol == "TLS" and not listener.passthrough:
        chain.transport_socket.CopyFrom(downstream_tls(g, listener))
        chain.transport_socket_connect_timeout.CopyFrom(seconds(http_rules(g, gateway).handshake_seconds))
    tls = [hop_tls.attempt(g, *backend.hop) if backend.hop else None for backend in plan.backends]
    chain.name += f"@{content_hash(b''.join(map(_tls_bytes, tls)))[:12]}"
    proxy = tcp_proxy_pb2.TcpProxy(
        stat_prefix="tcp",
        access_log=[stream_log(gateway.path, plan.origin, access_log_mode(g, gateway)), stream_sample_log(plan.origin)],
        # Logs long-lived connections when they connect, and the backend's response soon after.
        access_log_options=tcp_proxy_pb2.TcpProxy.TcpAccessLogOptions(
            flush_access_log_on_connected=True, access_log_flush_interval=seconds(LOG_INTERVAL)
        ),
    )
    if any(
        isinstance(connection, BackendTLS) and connection.waiver and connection.waiver.expires is not None
        for connection in tls
    ):
        proxy.max_downstream_connection_duration.CopyFrom(seconds(MAX_WAIVED_CONNECTION_SECONDS))
    if len(plan.backends) == 1:
        proxy.cluster = _cluster(plan.backends[0])
        try_again(proxy, connect_rules(g, gateway))
    else:
        share = tcp_proxy_pb2.TcpProxy.WeightedCluster.ClusterWeight
        shares = (share(name=_cluster(backend), weight=backend.weight) for backend in plan.backends)
        proxy.weighted_clusters.clusters.extend(shares)
    chain.filters.append(listener_components_pb2.Filter(name=TCP_PROXY, typed_config=packed(proxy)))
    return chain


def _cluster(backend: WeightedBackend) -> str:
    return backend.hop.name if backend.hop else REFUSED


def _tls_bytes(tls: HopTLS | Crash | None) -> bytes:
    if isinstance(tls, BackendTLS):
        return content_hash(encode(upstream_transport_socket(tls, tls.options.alpn))).encode()
    return type(tls).__name__.encode()


def _datagrams(plan: Stream) -> listener_components_pb2.ListenerFilter:
    config = udp_proxy_pb2.UdpProxyConfig(stat_prefix="udp", matcher=_by_weight(plan.backends))
    return listener_components_pb2.ListenerFilter(name=UDP_PROXY, typed_config=packed(config))


def _by_weight(backends: tuple[WeightedBackend, ...]) -> matcher_pb2.Matcher:
    """Distributes UDP sessions, for which Envoy has no weighted clusters. The hash of the client's port decides: each backend
    takes its share of the remaining sessions, and the last one takes the rest. Each step uses a different seed."""
    matcher = matcher_pb2.Matcher()
    *first, last = backends
    left = sum(backend.weight for backend in backends)
    for seed, backend in enumerate(first):
        share = consistent_hashing_pb2.ConsistentHashing(threshold=left - backend.weight, modulo=left, seed=seed)
        step = matcher.matcher_list.matchers.add()
        step.predicate.single_predicate.input.CopyFrom(_extension("port", network_inputs_pb2.SourcePortInput()))
        step.predicate.single_predicate.custom_match.CopyFrom(_extension("share", share))
        step.on_match.action.CopyFrom(_to(backend))
        left -= backend.weight
    matcher.on_no_match.action.CopyFrom(_to(last))
    return matcher


def _to(backend: WeightedBackend) -> extension_pb2.TypedExtensionConfig:
    return _extension("route", route_pb2.Route(cluster=_cluster(backend)))


def _extension(name: str, message: Message) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(message))


STREAMS = Output("streams", LISTENER_STREAMS, stream_or_closed, is_referenced=True, has_references=True)


def with_streams(listener: Resource, streams: Iterable[EncodedStream]) -> Resource | None:
    """Returns the listener with the streams of its port; None without any chain, which Envoy would refuse."""
    ordered = sorted(streams, key=lambda encoded: encoded.part)
    if not ordered:
        return listener if listener.parts else None
    body = b"".join([listener.body, *(encoded.body for encoded in ordered)])
    parts = {**listener.parts, **{encoded.part: encoded.digest for encoded in ordered if encoded.digest}}
    owners = {**listener.owners, **{encoded.part: encoded.owner for encoded in ordered if encoded.digest and encoded.owner}}
    return Resource(LISTENER, listener.name, body, content_hash(body), parts, owners=owners)
