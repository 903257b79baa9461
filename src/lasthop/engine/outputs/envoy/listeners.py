"""Listeners: one per port of a Gateway, with one filter chain per HTTPS hostname.

Certificates come by SDS and routes by RDS, so neither a rotation nor an edit of an HTTPRoute touches a listener. streams.py
encodes the filter chains of TCP and TLS routes, which join their listener last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, protocol_pb2, substitution_format_string_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.access_log import (
    GRPC_CALL,
    UPGRADE_STATE,
    access_log,
    all_of,
    ended_log,
    flagged,
    sample_log,
    status_is,
)
from lasthop.engine.outputs.envoy.clusters import BUFFER_LIMIT, METADATA
from lasthop.engine.outputs.envoy.encode import encode, over_ads, packed, seconds, socket_address
from lasthop.engine.outputs.envoy.quarantine import part_quarantined
from lasthop.engine.outputs.envoy.resource import LISTENER, Resource, content_hash
from lasthop.engine.outputs.envoy.route_filters import optional_filters
from lasthop.engine.outputs.envoy.route_messages import IDLE, INTERNAL_ERROR, NO_ROUTE
from lasthop.engine.outputs.envoy.routes import table_name
from lasthop.engine.outputs.envoy.tls import TLS, secret_config
from lasthop.engine.outputs.envoy.tracing import trace
from lasthop.engine.plan.listener import ClientCertificates, GatewayPlan, ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.profile import AccessLog, HttpRules
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.gateways.profiles import access_log_mode, backend_rules, http_rules
from lasthop.engine.resolve.gateways.telemetry import tracing
from lasthop.engine.resolve.trust.certificates import union
from lasthop.engine.resolve.trust.trust import bundle
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output

HCM: Final = "envoy.filters.network.http_connection_manager"
BACKEND_FAILURE: Final = "The gateway could not make a verified connection to the backend."
"""The response for a failed hop. The reason is only in the log, the status and the metrics."""
NO_ANSWER: Final = "The gateway got no answer from the backend."
"""The response for a connected backend that did not answer."""
NOT_SERVED: Final = "The gateway cannot serve this call as its route requires."
UNAVAILABLE: Final = 503
"""Envoy maps 503 to UNAVAILABLE for gRPC clients, and 500 to UNKNOWN."""
INSUFFICIENT_STORAGE: Final = 507
CLIENT_BUFFER_LIMIT: Final = 4 * BUFFER_LIMIT
"""Buffer of a client's connection. A smaller one costs more CPU for large bodies. It does not cost memory for slow clients,
because the backend connection's buffer bounds the data (docs/measurements.md#buffer-limits)."""
HEADERS_TIMEOUT: Final = 10.0
"""Timeout for complete request headers. Envoy's own timer for that costs 1.5 % of every request. The listener's idle timeout
has the same effect without cost, because the route's timeout replaces it."""
MAX_STREAMS: Final = 100


_ESCAPED_SLASHES: Final = {
    "RejectRequest": hcm_pb2.HttpConnectionManager.REJECT_REQUEST,
    "UnescapeAndRedirect": hcm_pb2.HttpConnectionManager.UNESCAPE_AND_REDIRECT,
    "UnescapeAndForward": hcm_pb2.HttpConnectionManager.UNESCAPE_AND_FORWARD,
    "KeepUnchanged": hcm_pb2.HttpConnectionManager.KEEP_UNCHANGED,
}
_UNDERSCORES: Final = {
    "RejectRequest": protocol_pb2.HttpProtocolOptions.REJECT_REQUEST,
    "DropHeader": protocol_pb2.HttpProtocolOptions.DROP_HEADER,
    "Allow": protocol_pb2.HttpProtocolOptions.ALLOW,
}


def listener_name(key: Key, port: int, transport: str) -> str:
    return f"{key.path}/{port}" if transport == "TCP" else f"{key.path}/{port}/{transport.lower()}"


@query
def listener_resources(g: Graph, key: Key) -> tuple[Resource, ...]:
    """Returns the Gateway's listeners by port, without the chains of streams.py. Ports that cannot be bound are left out."""
    owner = gateway(g, key)
    if owner is None or not owner.accepted.status:
        return ()
    ports: dict[tuple[int, str], list[ListenerPlan]] = {}
    for listener in owner.listeners:
        if listener.served and port_problem(g, key, listener.port, listener.transport) is None:
            ports.setdefault((listener.port, listener.transport), []).append(listener)
    for listener in owner.listeners:
        if (
            listener.closed
            and listener.protocol == "HTTPS"
            and (port := (listener.port, "TCP")) in ports
            and listener.hostname
        ):
            ports[port].append(listener)
    built = (g.shielded(_port, owner, port, transport, listeners) for (port, transport), listeners in sorted(ports.items()))
    return tuple(resource for resource in built if isinstance(resource, Resource))


def _port(g: Graph, owner: GatewayPlan, port: int, transport: str, listeners: list[ListenerPlan]) -> Resource:
    name = listener_name(owner.key, port, transport)
    chains: dict[str, listener_components_pb2.FilterChain] = {}
    owners: dict[str, Key] = {}
    for listener in listeners:
        if not listener.http:
            continue
        chain = g.shielded(_chain, owner, listener) if listener.served else _closed(listener)
        if isinstance(chain, Crash):
            chain = _closed(listener)
        part = f"{name}#{chain.name}"
        digest = content_hash(encode(chain))
        chains[part] = _closed(listener) if part_quarantined(g, LISTENER, part, digest) else chain
        owners.setdefault(part, listener.owner)
    first, *additional = owner.addresses
    message = listener_pb2.Listener(
        name=name,
        address=socket_address(first, port, transport),
        additional_addresses=[
            listener_pb2.AdditionalAddress(address=socket_address(address, port, transport)) for address in additional
        ],
        per_connection_buffer_limit_bytes=UInt32Value(value=CLIENT_BUFFER_LIMIT),
        filter_chains=chains.values(),
    )
    if listeners[0].protocol in ("HTTPS", "TLS"):
        inspector = packed(tls_inspector_pb2.TlsInspector())
        message.listener_filters.append(
            listener_components_pb2.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=inspector)
        )
    if transport == "TCP" and not all(listener.http for listener in listeners):
        message.access_log.append(ended_log(owner.key.path, access_log_mode(g, owner.key)))
    body = encode(message)
    parts = {part: content_hash(encode(chain)) for part, chain in chains.items() if chain.filters}
    return Resource(LISTENER, name, body, content_hash(body), parts, owners={part: owners[part] for part in parts})


def _chain(g: Graph, owner: GatewayPlan, listener: ListenerPlan) -> listener_components_pb2.FilterChain:
    """Returns the filter chain of a listener. HTTP listeners of a port share a route table, and so one chain."""
    rules = http_rules(g, owner.key)
    chain = listener_components_pb2.FilterChain(name=listener.table)
    # An open WebSocket or gRPC stream outlives its cluster and its route; only a changed chain ends it
    # (docs/measurements.md#open-streams). So a stricter GatewayProfile drains the Gateway's HTTP connections. Edits of tenants
    # must not, because all tenants share the chain.
    if permitted := backend_rules(g, owner.key).permits:
        chain.metadata.filter_metadata[METADATA].fields["permits"].string_value = permitted
    manager = _connection_manager(owner.key, listener.table, rules, access_log_mode(g, owner.key))
    traced = tracing.attempt(g, owner.key)
    if traced and not isinstance(traced, Crash):
        trace(manager, traced)
    chain.filters.append(listener_components_pb2.Filter(name=HCM, typed_config=packed(manager)))
    if listener.protocol == "HTTPS":
        if listener.hostname:
            chain.filter_chain_match.server_names.append(listener.hostname)
        chain.transport_socket.CopyFrom(downstream_tls(g, listener, ("h2", "http/1.1")))
        chain.transport_socket_connect_timeout.CopyFrom(seconds(rules.handshake_seconds))
    return chain


def _closed(listener: ListenerPlan) -> listener_components_pb2.FilterChain:
    """Returns a chain without filters, so that Envoy closes connections. It reserves the hostname, which a less specific
    listener would serve otherwise."""
    chain = listener_components_pb2.FilterChain(name=listener.table)
    if listener.protocol == "HTTPS" and listener.hostname:
        chain.filter_chain_match.server_names.append(listener.hostname)
    return chain


def downstream_tls(g: Graph, listener: ListenerPlan, alpn: tuple[str, ...] = ()) -> base_pb2.TransportSocket:
    context = tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            alpn_protocols=alpn,
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=common_pb2.TlsParameters.TLSv1_2,
                tls_maximum_protocol_version=common_pb2.TlsParameters.TLSv1_3,
            ),
            tls_certificate_sds_secret_configs=[secret_config(secret.path) for secret in listener.certificates],
        )
    )
    if listener.clients:
        _ask_clients(g, listener.clients, context)
    return base_pb2.TransportSocket(name=TLS, typed_config=packed(context))


def _ask_clients(g: Graph, clients: ClientCertificates, context: tls_pb2.DownstreamTlsContext) -> None:
    """Requests client certificates. The CAs are inline, so that a changed CA changes the chain and drains connections that the
    old one accepted."""
    bundles = (bundle(g, namespace, ref) for namespace, ref in clients.cas)
    anchors = union(ca_bundle for ca_bundle in bundles if not isinstance(ca_bundle, Problem))
    validation = context.common_tls_context.validation_context
    validation.trusted_ca.inline_bytes = anchors.pem
    if anchors.crl:
        validation.crl.inline_bytes = anchors.crl
        validation.only_verify_leaf_cert_crl = anchors.crl_of_leaf
    context.require_client_certificate.value = clients.required
    if not clients.required:
        validation.trust_chain_verification = common_pb2.CertificateValidationContext.ACCEPT_UNTRUSTED


def _connection_manager(key: Key, table: str, rules: HttpRules, mode: AccessLog) -> hcm_pb2.HttpConnectionManager:
    router = router_pb2.Router(dynamic_stats=BoolValue(value=False), suppress_envoy_headers=True)
    filters = [*optional_filters(), hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=packed(router))]
    return hcm_pb2.HttpConnectionManager(
        stat_prefix="http",
        rds=hcm_pb2.Rds(config_source=over_ads(), route_config_name=table_name(key, table)),
        http_filters=filters,
        upgrade_configs=[websocket(filters)],
        use_remote_address=BoolValue(value=True),
        normalize_path=BoolValue(value=True),
        merge_slashes=rules.merge_slashes,
        path_with_escaped_slashes_action=_ESCAPED_SLASHES[rules.escaped_slashes],
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=seconds(rules.idle_seconds),
            headers_with_underscores_action=_UNDERSCORES[rules.underscores_in_headers],
        ),
        strip_trailing_host_dot=True,
        generate_request_id=BoolValue(value=False),
        stream_idle_timeout=seconds(HEADERS_TIMEOUT),
        stream_flush_timeout=seconds(IDLE),
        http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
            max_concurrent_streams=UInt32Value(value=MAX_STREAMS),
            initial_stream_window_size=UInt32Value(value=BUFFER_LIMIT),
            initial_connection_window_size=UInt32Value(value=16 * BUFFER_LIMIT),
        ),
        server_header_transformation=hcm_pb2.HttpConnectionManager.PASS_THROUGH,
        access_log=[access_log(key.path, mode), sample_log()],
        # Logs long-lived WebSockets when they connect.
        access_log_options=hcm_pb2.HttpConnectionManager.HcmAccessLogOptions(
            flush_log_on_tunnel_successfully_established=True
        ),
        local_reply_config=_local_replies(),
    )


def _local_replies() -> hcm_pb2.LocalReplyConfig:
    """Returns Envoy's own responses; the first match is sent. gRPC clients get UNAVAILABLE where others get 500, independent
    of the route kind."""
    # UF: connecting or the handshake failed; NC: there is no cluster, because its policy is invalid; UH: no endpoint.
    failed = flagged("UF", "NC", "UH")
    # The connection ended (UC) or the request was reset (UR, LR); too late (UT, SI), not HTTP (UPE), too many at once (UO).
    unanswered = flagged("UC", "UR", "LR", "UT", "SI", "UPE", "UO")
    no_route = flagged("NR")
    # A connection failed, and the request's body exceeded Envoy's buffer, so that no retry was possible.
    too_large = status_is(accesslog_pb2.ComparisonFilter.EQ, INSUFFICIENT_STORAGE)
    body_format = substitution_format_string_pb2.SubstitutionFormatString(
        text_format_source=base_pb2.DataSource(inline_string="%LOCAL_REPLY_BODY%")
    )
    return hcm_pb2.LocalReplyConfig(
        mappers=[
            _reply(all_of(GRPC_CALL, failed), BACKEND_FAILURE, UNAVAILABLE),
            _reply(all_of(GRPC_CALL, too_large), BACKEND_FAILURE, UNAVAILABLE),
            _reply(all_of(GRPC_CALL, status_is(accesslog_pb2.ComparisonFilter.EQ, INTERNAL_ERROR)), NOT_SERVED, UNAVAILABLE),
            _reply(all_of(GRPC_CALL, unanswered), NO_ANSWER),
            _reply(all_of(GRPC_CALL, no_route), NO_ROUTE),
            _reply(failed, f"{BACKEND_FAILURE}\n"),
            _reply(too_large, f"{BACKEND_FAILURE}\n", UNAVAILABLE),
            _reply(unanswered, f"{NO_ANSWER}\n"),
            _reply(no_route, f"{NO_ROUTE}\n"),
        ],
        body_format=body_format,
    )


def _reply(when: accesslog_pb2.AccessLogFilter, body: str, status: int | None = None) -> hcm_pb2.ResponseMapper:
    return hcm_pb2.ResponseMapper(
        filter=when, body=base_pb2.DataSource(inline_string=body), status_code=UInt32Value(value=status) if status else None
    )


LISTENERS = Output("listeners", "Gateway", listener_resources, has_references=True)


FILTER: Final = "lasthop.upgrades"
OFFERED: Final = "envoy.network.application_protocols"
"""Envoy's filter state key for the ALPN protocols of a connection to a backend, in place of the cluster's."""


def websocket(filters: Sequence[hcm_pb2.HttpFilter]) -> hcm_pb2.HttpConnectionManager.UpgradeConfig:
    """Returns the filter chain for upgrade requests. It precedes the usual filters with one that restricts ALPN in the
    backend's TLS handshake to http/1.1, even if other requests use h2. These connections have a separate pool within the hop's
    cluster, so trust, names and client certificate are the same (docs/measurements.md#alpn)."""
    states = [_state(OFFERED, "http/1.1"), _state(UPGRADE_STATE, "true", factory="envoy.string")]
    config = set_filter_state_pb2.Config(on_request_headers=states)
    first = hcm_pb2.HttpFilter(name=FILTER, typed_config=packed(config))
    return hcm_pb2.HttpConnectionManager.UpgradeConfig(upgrade_type="websocket", filters=[first, *filters])


def _state(key: str, value: str, factory: str = "") -> value_pb2.FilterStateValue:
    format_string = substitution_format_string_pb2.SubstitutionFormatString(
        text_format_source=base_pb2.DataSource(inline_string=value)
    )
    return value_pb2.FilterStateValue(object_key=key, factory_key=factory, format_string=format_string)
