"""Describes a listener's handling of a connection or a datagram."""

from __future__ import annotations

from typing import Any

from envoy.config.trace.v3 import opentelemetry_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.extensions.filters.udp.udp_proxy.v3 import route_pb2, udp_proxy_pb2
from envoy.extensions.matching.input_matchers.consistent_hashing.v3 import consistent_hashing_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2

from lasthop.base.pki import parse

TRIES = 4
"""Of a connection that may go to one backend only."""


def listener_lines(listener: Any) -> list[str]:
    """A line for each server name."""
    chains = [
        f"{', '.join(c.filter_chain_match.server_names) or 'any'}{_action(c)}{_clients(c)}" for c in listener.filter_chains
    ]
    return chains + [_datagrams(f) for f in listener.listener_filters if "udp_proxy" in f.name]


def _action(chain: Any) -> str:
    if not chain.filters:
        return ": closed"
    proxy = tcp_proxy_pb2.TcpProxy()
    if not chain.filters[0].typed_config.Unpack(proxy):
        return _traced(chain)
    shares = [f"{c.weight} to {c.name}" for c in proxy.weighted_clusters.clusters]
    how = "terminated, " if chain.HasField("transport_socket") else ""
    tries = proxy.max_connect_attempts.value or 1
    usual = 1 if shares else TRIES
    often = "" if tries == usual else f", {'once' if tries == 1 else f'{tries} tries'}"
    return f": {how}{', '.join(shares) or f'to {proxy.cluster}'}{often}"


def _traced(chain: Any) -> str:
    """Describes the destination, sampling and attributes of request spans."""
    manager = hcm_pb2.HttpConnectionManager()
    assert chain.filters[0].typed_config.Unpack(manager)
    if not manager.HasField("tracing"):
        return ""
    tracing, otel = manager.tracing, opentelemetry_pb2.OpenTelemetryConfig()
    assert tracing.provider.typed_config.Unpack(otel)
    headers = [f"{header.key}: {header.value}" for header in otel.grpc_service.initial_metadata]
    tags = [f"{tag.tag}={tag.literal.value or tag.request_header.name or tag.value}" for tag in tracing.custom_tags]
    details = (otel.service_name, tracing.operation, f"sampled {otel.sampler.name.rpartition('.')[2]}", *headers, *tags)
    return f", traced to {otel.grpc_service.envoy_grpc.cluster_name} ({', '.join(details)})"


def _clients(chain: Any) -> str:
    """Whose certificates clients must show."""
    context = tls_pb2.DownstreamTlsContext()
    if not chain.transport_socket.typed_config.Unpack(context):
        return ""
    validation = context.common_tls_context.validation_context
    if not validation.trusted_ca.inline_bytes:
        return ""
    certificates = parse.certificates(validation.trusted_ca.inline_bytes)
    assert isinstance(certificates, tuple)
    cas = ", ".join(c.common_name for c in certificates)
    if context.require_client_certificate.value and not validation.trust_chain_verification:
        return f", clients of {cas}"
    return f", clients of {cas} or anybody"


def _datagrams(filter: Any) -> str:
    config = udp_proxy_pb2.UdpProxyConfig()
    assert filter.typed_config.Unpack(config)
    steps = []
    for step in config.matcher.matcher_list.matchers:
        share = consistent_hashing_pb2.ConsistentHashing()
        assert step.predicate.single_predicate.custom_match.typed_config.Unpack(share)
        steps.append(f"{share.modulo - share.threshold} of {share.modulo} to {_cluster(step.on_match)}")
    return "datagrams: " + ", else ".join([*steps, f"to {_cluster(config.matcher.on_no_match)}"])


def _cluster(on_match: Any) -> str:
    route = route_pb2.Route()
    assert on_match.action.typed_config.Unpack(route)
    return str(route.cluster)
