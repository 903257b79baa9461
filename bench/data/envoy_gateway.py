"""Configures Envoy like Envoy Gateway v1.9.1 does for the same objects. It reproduces the default output of `egctl x
translate` for such a Gateway, routes, policies and `Backend`s, as one file.

    listener    32 KiB of buffer, one connection accepted at a time, a log of connections without a route
    HTTP        a JSON line of 24 fields for each request, request ids, Envoy's statistics of codes and times, 15 s a request
    cluster     one for each rule, 32 KiB of buffer, TLS by `transport_socket_matches` with the CA from SDS, 10 s to connect
    gRPC        filters for gRPC-Web and statistics of methods, on a listener that has a GRPCRoute
    statistics  all, with Envoy's tags

It also omits the fields for which Envoy Gateway uses Envoy's defaults. In its favour its log goes to /dev/null and not to
standard output, and gRPC has a listener of its own, so that only gRPC pays for its filters.
"""

from __future__ import annotations

from typing import Any

from bench.data.places import Places, host
from bench.data.tuned import Json, address, typed

BUFFER = 32768
LOG = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "x-envoy-origin-path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "protocol": "%PROTOCOL%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
    "upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration": "%DURATION%",
    "x-envoy-upstream-service-time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    "x-forwarded-for": "%REQ(X-FORWARDED-FOR)%",
    "user-agent": "%REQ(USER-AGENT)%",
    "x-request-id": "%REQ(X-REQUEST-ID)%",
    ":authority": "%REQ(:AUTHORITY)%",
    "upstream_host": "%UPSTREAM_HOST%",
    "upstream_cluster": "%UPSTREAM_CLUSTER%",
    "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
    "downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%",
    "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "requested_server_name": "%REQUESTED_SERVER_NAME%",
    "route_name": "%ROUTE_NAME%",
}
VERSIONS = {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"}
WINDOWS = {"initial_connection_window_size": 1 << 20, "initial_stream_window_size": 1 << 16}
HTTP = ("h1", "h2", "close")
_GRPC_WEB: Json = {
    "name": "envoy.filters.http.grpc_web",
    "typed_config": typed("extensions.filters.http.grpc_web.v3.GrpcWeb"),
}
_GRPC_STATS: Json = {
    "name": "envoy.filters.http.grpc_stats",
    "typed_config": typed(
        "extensions.filters.http.grpc_stats.v3.FilterConfig", emit_filter_state=True, stats_for_all_methods=True
    ),
}
_CONNECTIONS = typed(
    "extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
    max_active_downstream_connections=50000,
)


def envoy_gateway(places: Places, ports: dict[str, int]) -> Json:
    trust = {"name": "ca", "validation_context": {"trusted_ca": {"filename": str(places.ca)}}}
    return {
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "stats_config": {"use_all_default_tags": True},
        "overload_manager": {
            "refresh_interval": "0.25s",
            "resource_monitors": [
                {"name": "envoy.resource_monitors.global_downstream_max_connections", "typed_config": _CONNECTIONS}
            ],
        },
        "static_resources": {
            "listeners": [
                _http(ports["http"], HTTP),
                _http(ports["grpc"], ("grpc",), _GRPC_WEB, _GRPC_STATS),
                _stream(places, ports["stream"]),
            ],
            "clusters": [_cluster(places, label) for label in (*HTTP, "grpc", "echo")],
            "secrets": [trust],
        },
    }


def _name(label: str) -> str:
    kind = {"grpc": "grpcroute", "echo": "tlsroute"}.get(label, "httproute")
    return f"{kind}/shop/{label}/rule/0"


def _log(**filter: Any) -> Json:
    log = typed("extensions.access_loggers.file.v3.FileAccessLog", path="/dev/null", log_format={"json_format": LOG})
    return {"name": "envoy.access_loggers.file", "typed_config": log, **filter}


def _listener(name: str, port: int, **fields: Any) -> Json:
    unrouted = {"response_flag_filter": {"flags": ["NR"]}}
    return {
        "name": name,
        "address": address(port),
        "per_connection_buffer_limit_bytes": BUFFER,
        "max_connections_to_accept_per_socket_event": 1,
        "access_log": [_log(filter=unrouted)],
        **fields,
    }


def _http(port: int, labels: tuple[str, ...], *filters: Json) -> Json:
    upgrades = {"upgrade_configs": [{"upgrade_type": "websocket"}]}
    hosts = [
        {
            "name": f"shop/web/http/{label}",
            "domains": [host(label)],
            "routes": [
                {
                    "name": f"{_name(label)}/match/0/{label}",
                    "match": {"prefix": "/"},
                    "route": {"cluster": _name(label), **({} if label == "grpc" else upgrades)},
                }
            ],
        }
        for label in labels
    ]
    router = typed("extensions.filters.http.router.v3.Router", suppress_envoy_headers=True)
    manager = typed(
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=f"http-{port}",
        access_log=[_log()],
        common_http_protocol_options={"headers_with_underscores_action": "REJECT_REQUEST"},
        http2_protocol_options={**WINDOWS, "max_concurrent_streams": 100},
        http_filters=[*filters, {"name": "envoy.filters.http.router", "typed_config": router}],
        merge_slashes=True,
        normalize_path=True,
        path_with_escaped_slashes_action="UNESCAPE_AND_REDIRECT",
        route_config={"name": "shop/web/http", "ignore_port_in_host_matching": True, "virtual_hosts": hosts},
        server_header_transformation="PASS_THROUGH",
        use_remote_address=True,
    )
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return _listener(f"shop/web/{port}", port, default_filter_chain={"name": "shop/web/http", "filters": chain})


def _stream(places: Places, port: int) -> Json:
    pair = {"certificate_chain": {"filename": str(places.certificate)}, "private_key": {"filename": str(places.key)}}
    context = typed(
        "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={"tls_certificates": [pair], "tls_params": VERSIONS},
        disable_stateful_session_resumption=True,
        disable_stateless_session_resumption=True,
    )
    proxy = typed(
        "extensions.filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix=f"tls-terminate-{port}",
        cluster=_name("echo"),
        access_log=[_log()],
    )
    chain = {
        "filter_chain_match": {"server_names": [host("echo")]},
        "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}],
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
    }
    inspector = typed("extensions.filters.listener.tls_inspector.v3.TlsInspector")
    filters = [{"name": "envoy.filters.listener.tls_inspector", "typed_config": inspector}]
    return _listener("shop/web/tls", port, listener_filters=filters, filter_chains=[chain])


def _cluster(places: Places, label: str) -> Json:
    name, match = _name(label), {"name": f"{_name(label)}/tls/0"}
    san = {"san_type": "DNS", "matcher": {"exact": host(label)}}
    validation = {
        "default_validation_context": {"match_typed_subject_alt_names": [san]},
        "validation_context_sds_secret_config": {"name": "ca"},
    }
    common = {"combined_validation_context": validation, "tls_params": VERSIONS}
    context = _upstream(sni=host(label), common_tls_context=common)
    endpoint = {
        "endpoint": {"address": address(places.port(label))},
        "load_balancing_weight": 1,
        "metadata": {"filter_metadata": {"envoy.transport_socket_match": match}},
    }
    locality = {"locality": {"region": f"{name}/backend/0"}, "load_balancing_weight": 1, "lb_endpoints": [endpoint]}
    balancing = typed(
        "extensions.load_balancing_policies.least_request.v3.LeastRequest",
        locality_lb_config={"locality_weighted_lb_config": {}},
    )
    policy = {"name": "envoy.load_balancing_policies.least_request", "typed_config": balancing}
    cluster: Json = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "per_connection_buffer_limit_bytes": BUFFER,
        "ignore_health_on_host_removal": True,
        "circuit_breakers": {"thresholds": [{"max_retries": 1024}]},
        "common_lb_config": {},
        "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]},
        "load_assignment": {"cluster_name": name, "endpoints": [locality]},
        "transport_socket_matches": [{"name": match["name"], "match": match, "transport_socket": context}],
    }
    if label == "echo":
        return cluster
    http2 = {"http2_protocol_options": WINDOWS}
    either: Json = {"http_protocol_options": {}, **http2}
    options = {"explicit_http_config": http2} if label == "grpc" else {"auto_config": either}
    kind = "extensions.upstreams.http.v3.HttpProtocolOptions"
    cluster["typed_extension_protocol_options"] = {f"envoy.{kind}": typed(kind, **options)}
    # Without it Envoy would refuse `auto_config`; endpoints use the one that matches.
    cluster["transport_socket"] = _upstream(common_tls_context={})
    return cluster


def _upstream(**fields: Any) -> Json:
    context = typed("extensions.transport_sockets.tls.v3.UpstreamTlsContext", **fields)
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}
