"""Envoy's bootstrap: who it is and where to ask. Everything else reaches it by xDS."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final

import msgspec

from lasthop.outputs.envoy.xds_cluster import XDS_CLUSTER, LocalXds, RemoteXds, xds_cluster

NODE_CLUSTER: Final = "lasthop"

MAX_CONNECTIONS: Final = 50_000
"""Envoy's own advice for an edge proxy. Past it new clients are turned away, those that are connected stay."""


def bootstrap(
    *, node_id: str, xds: LocalXds | RemoteXds, admin_socket: PurePath, max_connections: int = MAX_CONNECTIONS
) -> bytes:
    """`node_id` is the Gateway's `namespace/name`. Equal arguments give equal bytes: adopting an Envoy relies on it."""
    config: dict[str, Any] = {
        "node": {"id": node_id, "cluster": NODE_CLUSTER},
        "admin": {
            # The admin API can stop Envoy and rewrite its log levels: only the user that runs it may come near.
            "address": {"pipe": {"path": str(admin_socket), "mode": 0o600}},
            "ignore_global_conn_limit": True,
        },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                # The node lists every extension that Envoy has, some 60 KB; once a stream is enough.
                "set_node_on_first_message_only": True,
                # A Lasthop that comes back is found within a second. Envoy's own pause grows to 30 s, in which no edit
                # would have an effect.
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": XDS_CLUSTER,
                            "retry_policy": {"retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"}},
                        }
                    }
                ],
            },
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [xds_cluster(xds)]},
        # Plain statistics stay on (0.4 % of a request): they carry the reasons of failed handshakes. Those of a cluster
        # without traffic are not made, and nobody walks all of them every 5 s when nobody has asked.
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "stats_flush_on_admin": True,
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors"
                        ".downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": max_connections,
                    },
                }
            ]
        },
        "layered_runtime": {
            "layers": [
                {
                    "name": "lasthop",
                    # Envoy refuses regular expressions above program size 100, which the pattern of a name of 90
                    # letters reaches. RE2 runs in linear time whatever the size.
                    "static_layer": {
                        "re2.max_program_size.error_level": 1 << 20,
                        "re2.max_program_size.warn_level": 1 << 20,
                    },
                }
            ]
        },
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
