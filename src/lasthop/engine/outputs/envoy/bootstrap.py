"""Envoy's bootstrap: its identity and the xDS server. All other configuration arrives by xDS."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

from lasthop.engine.outputs.envoy.statistics import stats_config
from lasthop.engine.outputs.envoy.xds_cluster import XDS_CLUSTER, LocalXds, RemoteXds, xds_cluster
from lasthop.engine.plan.limits import REGEX_CEILING

NODE_CLUSTER: Final = "lasthop"

MAX_CONNECTIONS: Final = 50_000
"""Envoy's advice for an edge proxy. Above it, new connections are refused; existing ones stay."""


MAX_HEAP: Final = 1 << 30
"""Heap limit if the host's memory is not known."""
_HEAP: Final = "envoy.resource_monitors.fixed_heap"
_TRACKED: Final = 20
"""Envoy tracks streams that buffer at least 2^20 bytes, to reset the largest first."""


def bootstrap(
    *,
    node_id: str,
    xds: LocalXds | RemoteXds,
    admin_socket: PurePath,
    max_connections: int = MAX_CONNECTIONS,
    max_heap: int = MAX_HEAP,
) -> bytes:
    """Returns the bootstrap of an Envoy. `node_id` is the Gateway's `namespace/name`. Equal arguments give equal bytes,
    because the adoption of a running Envoy compares them."""
    pause = {"base_interval": "0.1s", "max_interval": "1s"}
    # Envoy refuses regular expressions above program size 100, which the pattern of a name of 90 letters reaches. A route's
    # own limit is lower than this one and is checked before (see Limits).
    levels = dict.fromkeys(("re2.max_program_size.error_level", "re2.max_program_size.warn_level"), REGEX_CEILING)
    config: dict[str, object] = {
        "node": {"id": node_id, "cluster": NODE_CLUSTER},
        "admin": {
            # The admin API can stop Envoy and change its log levels, so only Envoy's own user may connect.
            "address": {"pipe": {"path": str(admin_socket), "mode": 0o600}},
            "ignore_global_conn_limit": True,
        },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                # The node lists every extension that Envoy has, some 60 KB; once a stream is enough.
                "set_node_on_first_message_only": True,
                # Envoy reconnects to a restarted Lasthop within a second. Its default backoff grows to 30 s without updates.
                "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER, "retry_policy": {"retry_back_off": pause}}}],
            },
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [xds_cluster(xds)]},
        # Clusters without traffic get no statistics, and Envoy does not walk them every 5 s but only for the admin API.
        "stats_config": stats_config(),
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "stats_flush_on_admin": True,
        "overload_manager": _overload_manager(max_connections, max_heap),
        # The admin API sets the logged share of requests (see engine/outputs/envoy/access_log.py).
        "layered_runtime": {"layers": [{"name": "lasthop", "static_layer": levels}, {"name": "admin", "admin_layer": {}}]},
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def _overload_manager(max_connections: int, max_heap: int) -> dict[str, object]:
    """Returns Envoy's reactions to overload, ordered by their cost for clients."""
    return {
        "refresh_interval": "0.25s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": _TRACKED},
        "resource_monitors": [
            {
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": f"{_MONITORS}.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": max_connections,
                },
            },
            {
                "name": _HEAP,
                "typed_config": {"@type": f"{_MONITORS}.fixed_heap.v3.FixedHeapConfig", "max_heap_size_bytes": max_heap},
            },
        ],
        "actions": [
            {
                "name": "envoy.overload_actions.reduce_timeouts",
                "triggers": [_between(0.80, 0.95)],
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
                    "timer_scale_factors": [
                        {"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "2s"},
                        {"timer": "TRANSPORT_SOCKET_CONNECT", "min_timeout": "2s"},
                    ],
                },
            },
            {"name": "envoy.overload_actions.shrink_heap", "triggers": [_from(0.85)]},
            {"name": "envoy.overload_actions.disable_http_keepalive", "triggers": [_from(0.90)]},
            {"name": "envoy.overload_actions.reset_high_memory_stream", "triggers": [_between(0.90, 0.98)]},
            {"name": "envoy.overload_actions.stop_accepting_connections", "triggers": [_from(0.95)]},
            {"name": "envoy.overload_actions.stop_accepting_requests", "triggers": [_from(0.98)]},
        ],
    }


_MONITORS: Final = "type.googleapis.com/envoy.extensions.resource_monitors"


def _from(share: float) -> dict[str, object]:
    return {"name": _HEAP, "threshold": {"value": share}}


def _between(share: float, all_of_it: float) -> dict[str, object]:
    """Starts at `share` and saturates at `all_of_it`."""
    return {"name": _HEAP, "scaled": {"scaling_threshold": share, "saturation_threshold": all_of_it}}
