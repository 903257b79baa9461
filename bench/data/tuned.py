"""Configures Envoy by hand for these backends, for speed only.

It omits these parts of Lasthop's configuration: statistics, access logs, path normalisation and other rules for requests, idle
limits of requests, retries, ejection, overload protection, small buffers, readable error responses. TLS to backends is
verified by CA and name all the same, and X-Forwarded-For is not left to clients. On request it has the same statistics as
Lasthop, and the same protections, each by the setting that Envoy's documentation has for it.
"""

from __future__ import annotations

import json
from typing import Any

from bench.data.places import Places, host
from lasthop.engine.outputs.envoy.bootstrap import bootstrap
from lasthop.engine.outputs.envoy.statistics import stats_config
from lasthop.engine.outputs.envoy.xds_cluster import LocalXds

Json = dict[str, Any]
_TYPES = "type.googleapis.com/envoy"
_HCM = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def tuned(places: Places, ports: dict[str, int], *, stats: bool, protected: bool = False) -> Json:
    clusters = [_cluster(places, label, "http1") for label in ("h1", "close")]
    clusters += [_cluster(places, label, "http2") for label in ("h2", "grpc")]
    emitted = bootstrap(node_id="bench", xds=LocalXds(places.home), admin_socket=places.home)
    overload = {"overload_manager": json.loads(emitted)["overload_manager"]}
    return {
        **(overload if protected else {}),
        "stats_config": stats_config() if stats else {"stats_matcher": {"reject_all": True}},
        "static_resources": {
            "listeners": [_http(ports["http"], protected), _stream(places, ports["stream"])],
            "clusters": [*clusters, _cluster(places, "echo", "")],
        },
    }


def typed(kind: str, **fields: Any) -> Json:
    return {"@type": f"{_TYPES}.{kind}", **fields}


def address(port: int) -> Json:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


RETRIES: Json = {
    "retry_on": "connect-failure,refused-stream,reset-before-request",
    "num_retries": 1,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": typed("extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
        }
    ],
}
PROTECTIONS: Json = {
    "stream_idle_timeout": "300s",
    "request_headers_timeout": "10s",
    "normalize_path": True,
    "merge_slashes": True,
    "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
    "common_http_protocol_options": {"headers_with_underscores_action": "DROP_HEADER"},
}


def _http(port: int, protected: bool) -> Json:
    router = typed("extensions.filters.http.router.v3.Router", dynamic_stats=False, suppress_envoy_headers=True)
    labels = ("h1", "h2", "close", "grpc")
    hosts = [
        {
            "name": label,
            "domains": [host(label)],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": f"to/{label}", "timeout": "0s"}}],
            **({"retry_policy": RETRIES} if protected else {}),
        }
        for label in labels
    ]
    manager = typed(
        _HCM,
        stat_prefix="http",
        route_config={"virtual_hosts": hosts},
        http_filters=[{"name": "envoy.filters.http.router", "typed_config": router}],
        upgrade_configs=[{"upgrade_type": "websocket"}],
        use_remote_address=True,
        generate_request_id=False,
        server_header_transformation="PASS_THROUGH",
        **(PROTECTIONS if protected else {"stream_idle_timeout": "0s"}),
    )
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "http", "address": address(port), "filter_chains": [chain]}


def _stream(places: Places, port: int) -> Json:
    pair = {"certificate_chain": {"filename": str(places.certificate)}, "private_key": {"filename": str(places.key)}}
    common = {"tls_certificates": [pair], "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}}
    context = typed("extensions.transport_sockets.tls.v3.DownstreamTlsContext", common_tls_context=common)
    proxy = typed("extensions.filters.network.tcp_proxy.v3.TcpProxy", stat_prefix="tcp", cluster="to/echo")
    chain = {
        "filter_chain_match": {"server_names": [host("echo")]},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
        "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}],
    }
    inspector = typed("extensions.filters.listener.tls_inspector.v3.TlsInspector")
    filters = [{"name": "envoy.filters.listener.tls_inspector", "typed_config": inspector}]
    return {"name": "stream", "address": address(port), "listener_filters": filters, "filter_chains": [chain]}


def _cluster(places: Places, label: str, http: str) -> Json:
    name = {"san_type": "DNS", "matcher": {"exact": host(label)}}
    validation = {"trusted_ca": {"filename": str(places.ca)}, "match_typed_subject_alt_names": [name]}
    common = {"tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}, "validation_context": validation}
    context = typed(
        "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        sni=host(label),
        max_session_keys=64,
        common_tls_context=common,
    )
    endpoint = {"endpoint": {"address": address(places.port(label))}}
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 8192)
    cluster = {
        "name": f"to/{label}",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {"cluster_name": f"to/{label}", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
    }
    if http:
        options: Json = {"explicit_http_config": {f"{http.replace('http1', 'http')}_protocol_options": {}}}
        kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        cluster["typed_extension_protocol_options"] = {
            kind: typed("extensions.upstreams.http.v3.HttpProtocolOptions", **options)
        }
    return cluster
