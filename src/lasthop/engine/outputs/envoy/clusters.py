"""Clusters of hops, and their endpoints.

Trust anchors are inline, so that a stricter policy never waits for a second message while the old one is in effect
(docs/measurements.md#inline-trust). The name of the endpoints contains the hash of the cluster, so a changed
cluster is a new subscription, with an immediate response. With an unchanged name, Envoy would warm it for 15 s
(docs/measurements.md#warming)."""

from __future__ import annotations

import functools
from typing import Final

import msgspec
from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import address_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import encode, field, over_ads, packed, seconds
from lasthop.engine.outputs.envoy.quarantine import quarantined
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, Resource, Single, content_hash, endpoints_name
from lasthop.engine.outputs.envoy.retries import budget_message, ejection
from lasthop.engine.outputs.envoy.tls import upstream_transport_socket
from lasthop.engine.plan.cluster_metadata import identity, metadata
from lasthop.engine.plan.reasons import POLICIES_UNKNOWN
from lasthop.engine.plan.tls import Anchors, BackendTLS, HopTLS, Plaintext, Refused, SystemStore
from lasthop.engine.plan.upstream import (
    Connection,
    ConnectRules,
    EndpointAddress,
    Endpoints,
    EndpointsKind,
    Hop,
    Protocol,
    RetryBudget,
)
from lasthop.engine.resolve.backends.backend_traffic import retry_budget
from lasthop.engine.resolve.backends.backends import endpoints, endpoints_kind, speaks_h2c
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.profiles import connect_rules
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output

CONNECT_TIMEOUT: Final = 5.0
"""Covers TCP and the TLS handshake."""
BUFFER_LIMIT: Final = 65536
"""Buffer of a connection to a backend. A slow client then costs some 130 KiB instead of 900
(docs/measurements.md#buffer-limits)."""
NO_LIMIT: Final = 1_000_000
"""Envoy's circuit breakers default to 1,024 requests, which causes 503s without a visible reason."""
ENDPOINTS_TIMEOUT: Final = 5.0
"""After this time, Envoy activates a new cluster version without endpoints, so that all requests get 503. It suffices for a
control plane with thousands of clusters. A longer time would keep the old version in effect longer."""
HEAVY: Final = 65536
"""Bundles above this size in bytes cost Envoy milliseconds each."""
METADATA: Final = "lasthop"
HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
CACHE_FROM: Final = 16
"""From this number of endpoints on, caching the bytes is cheaper than encoding them."""

_H1: Final = frozenset({"http/1.1"})
_H2: Final = frozenset({"h2"})

_LOCALITIES: Final = endpoint_pb2.ClusterLoadAssignment.ENDPOINTS_FIELD_NUMBER
_LB_ENDPOINTS: Final = endpoint_components_pb2.LocalityLbEndpoints.LB_ENDPOINTS_FIELD_NUMBER
_ENDPOINT: Final = endpoint_components_pb2.LbEndpoint.ENDPOINT_FIELD_NUMBER


class ClusterEntry(msgspec.Struct, frozen=True, gc=False):
    resource: Resource
    endpoints_name: str
    """Empty if the cluster contains its endpoints (DNS)."""
    plaintext: bool


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """Replaces the cluster of a hop that is closed only because policies are unknown."""


WITHHELD: Final = Withheld()


@query
def cluster(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> ClusterEntry | Withheld | None:
    """Builds the cluster of a hop. Without a cluster (Withheld or None), routes return 500 and connections are closed."""
    hop = Hop(gateway, backend, port, protocol)
    tls = hop_tls(g, *hop)
    if isinstance(tls, Refused):
        return WITHHELD if tls.why.reason == POLICIES_UNKNOWN else None
    address = (backend, port, protocol.transport)
    names = endpoints(g, *address) if endpoints_kind(g, *address) is EndpointsKind.DNS else None
    budget = (retry_budget(g, gateway, backend) if protocol.http else None) or RetryBudget()
    entry = build(hop, speaks_h2c(g, backend, port), tls, names, connect_rules(g, gateway), budget)
    return None if quarantined(g, entry.resource) else entry


def build(
    hop: Hop, h2c: bool, tls: BackendTLS | Plaintext, names: Endpoints | None, rules: ConnectRules, budget: RetryBudget
) -> ClusterEntry:
    """Copies the common part of clusters and adds the differences, which takes 31 µs. Joining encoded parts took 21 µs.
    A policy takes some 430 µs at start-up."""
    name, plaintext, by_dns = hop.name, isinstance(tls, Plaintext), names is not None
    versions, upgrades = offered(hop, h2c, tls), h2_but_upgrades(hop, h2c, tls)
    message = cluster_pb2.Cluster()
    message.CopyFrom(_common(hop.protocol, versions, upgrades, by_dns, rules, budget))
    message.name, message.alt_stat_name = name, Connection(hop, identity(tls)).name
    if isinstance(tls, BackendTLS):
        alpn = ("h2",) if upgrades else () if hop.protocol.http else tls.options.alpn
        message.transport_socket.CopyFrom(upstream_transport_socket(tls, alpn))
        # The access log needs these fields to explain a failed handshake.
        message.metadata.filter_metadata[METADATA].update(metadata(tls))
    if names is not None:
        message.load_assignment.MergeFromString(_assignment_name(name) + encoded_assignment(names))
    body = encode(message)
    version = content_hash(body)
    assignment = "" if by_dns else endpoints_name(name, version)
    if assignment:
        # The name is derived from the rest, so the version stays valid. Encoded messages merge by concatenation.
        body += encode(cluster_pb2.Cluster(eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(service_name=assignment)))
    trust, waiver = (tls.trust, tls.waiver) if isinstance(tls, BackendTLS) else (None, None)
    heavy = isinstance(trust, SystemStore) or (isinstance(trust, Anchors) and len(trust.pem) > HEAVY)
    # Envoy itself drops the cluster when the waiver ends, even if no controller runs then.
    expires = waiver.expires if waiver else None
    resource = Resource(CLUSTER, name, body, version, Single(name, version), expires, heavy, Single(name, hop.backend))
    return ClusterEntry(resource, assignment, plaintext)


@functools.lru_cache(maxsize=256)
def _common(
    protocol: Protocol, versions: frozenset[str], upgrades: bool, by_dns: bool, rules: ConnectRules, budget: RetryBudget
) -> cluster_pb2.Cluster:
    """Returns the common part of clusters. Callers copy it and never change it."""
    message = cluster_pb2.Cluster(
        type=cluster_pb2.Cluster.STRICT_DNS if by_dns else cluster_pb2.Cluster.EDS,
        connect_timeout=seconds(CONNECT_TIMEOUT),
        per_connection_buffer_limit_bytes=UInt32Value(value=BUFFER_LIMIT),
        lb_policy=cluster_pb2.Cluster.LEAST_REQUEST,
        circuit_breakers=_breakers(budget),
        outlier_detection=ejection(protocol, rules),
        ignore_health_on_host_removal=True,
    )
    if protocol.http:
        message.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(packed(_http_options(versions, upgrades)))
    if by_dns:
        message.respect_dns_ttl = True
        message.dns_lookup_family = cluster_pb2.Cluster.V4_PREFERRED
        # A resolver that does not answer must not delay the ACK of all other clusters (docs/measurements.md#acknowledgements).
        message.wait_for_warm_on_init.value = False
    else:
        message.eds_cluster_config.eds_config.CopyFrom(over_ads(ENDPOINTS_TIMEOUT))
    return message


def _breakers(budget: RetryBudget) -> circuit_breaker_pb2.CircuitBreakers:
    limit = UInt32Value(value=NO_LIMIT)
    return circuit_breaker_pb2.CircuitBreakers(
        thresholds=[
            circuit_breaker_pb2.CircuitBreakers.Thresholds(
                max_connections=limit, max_pending_requests=limit, max_requests=limit, retry_budget=budget_message(budget)
            )
        ]
    )


def _http_options(versions: frozenset[str], upgrades: bool) -> http_protocol_options_pb2.HttpProtocolOptions:
    """Returns the HTTP versions of a hop. Envoy derives ALPN from them; setting it by hand breaks servers that speak h2
    (docs/measurements.md#alpn)."""
    options = http_protocol_options_pb2.HttpProtocolOptions()
    http1, http2 = protocol_pb2.Http1ProtocolOptions(), protocol_pb2.Http2ProtocolOptions()
    if len(versions) == 2 or upgrades:
        options.auto_config.http_protocol_options.CopyFrom(http1)
        options.auto_config.http2_protocol_options.CopyFrom(http2)
    elif "h2" in versions:
        options.explicit_http_config.http2_protocol_options.CopyFrom(http2)
    else:
        options.explicit_http_config.http_protocol_options.CopyFrom(http1)
    return options


def h2_but_upgrades(hop: Hop, h2c: bool, tls: HopTLS) -> bool:
    """Returns whether requests offer only h2 but upgrades offer http/1.1. A backend that picks no protocol then gets
    HTTP/1.1."""
    of_requests = hop.protocol is Protocol.AUTO and isinstance(tls, BackendTLS) and not h2c
    return of_requests and offered(hop, h2c, tls) == _H2


def offered(hop: Hop, h2c: bool, tls: HopTLS) -> frozenset[str]:
    """Returns the HTTP versions for a backend; over TLS it picks one by ALPN."""
    if hop.protocol is Protocol.H1_UPGRADE:
        return _H1
    if hop.protocol is Protocol.H2:
        return _H2
    if isinstance(tls, Plaintext):
        return _H2 if h2c else _H1
    if isinstance(tls, BackendTLS) and tls.options.alpn:
        return frozenset(tls.options.alpn)
    return _H2 if h2c else _H1 | _H2


# --- endpoints -------------------------------------------------------------------------------------------------------


@query
def load_assignment(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Resource | None:
    entry = cluster(g, gateway, backend, port, protocol)
    if not isinstance(entry, ClusterEntry) or not entry.endpoints_name:
        return None
    endpoint_set = endpoints(g, backend, port, protocol.transport)
    few = len(endpoint_set.endpoints) < CACHE_FROM
    encoded = encoded_assignment(endpoint_set) if few else encoded_endpoints(g, backend, port, protocol.transport)
    body = _assignment_name(entry.endpoints_name) + encoded
    return Resource(ENDPOINTS, entry.endpoints_name, body, content_hash(body))


@query
def encoded_endpoints(g: Graph, backend: Key, port: int, transport: str) -> bytes:
    """Encodes many endpoints once for all clusters of a port, which differ only in protocol and Gateway."""
    return encoded_assignment(endpoints(g, backend, port, transport))


def _assignment_name(name: str) -> bytes:
    return field(endpoint_pb2.ClusterLoadAssignment.CLUSTER_NAME_FIELD_NUMBER, name.encode())


def encoded_assignment(endpoint_set: Endpoints) -> bytes:
    """Encodes a load assignment without its name. Encoding by hand takes 90 µs for 100 endpoints, messages take 380 µs, and
    endpoints change most often."""
    members = [field(_LB_ENDPOINTS, _lb_endpoint(endpoint)) for endpoint in endpoint_set.endpoints]
    return field(_LOCALITIES, b"".join(members)) if members else b""


def _lb_endpoint(endpoint: EndpointAddress) -> bytes:
    address = field(address_pb2.SocketAddress.ADDRESS_FIELD_NUMBER, endpoint.address.encode()) + _port(endpoint.port)
    of_endpoint = field(address_pb2.Address.SOCKET_ADDRESS_FIELD_NUMBER, address)
    return field(_ENDPOINT, field(endpoint_components_pb2.Endpoint.ADDRESS_FIELD_NUMBER, of_endpoint))


@functools.lru_cache(maxsize=1024)
def _port(number: int) -> bytes:
    return encode(address_pb2.SocketAddress(port_value=number))


CLUSTERS = Output("clusters", HOPS, cluster, is_referenced=True)
LOAD_ASSIGNMENTS = Output("endpoints", HOPS, load_assignment, is_referenced=True, reported_with=CLUSTERS.name)
