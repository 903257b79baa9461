"""The least of an xDS server: one listener that answers 200, over delta ADS on a unix socket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401 (its name must be known to parse the JSON)
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2  # noqa: F401
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
TYPE = "type.googleapis.com/envoy.extensions.filters."


@contextlib.asynccontextmanager
async def ads_server(socket: Path, port: int, attached: Callable[[str], None] = lambda node: None) -> AsyncIterator[None]:
    """`attached` is called with the node's id for each Envoy that opens a stream."""

    async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            if request.node.id:
                attached(request.node.id)
            if request.response_nonce:
                continue
            response = discovery_pb2.DeltaDiscoveryResponse(type_url=request.type_url, nonce="1", system_version_info="1")
            if request.type_url == LISTENER:
                resource = response.resources.add(name="web", version="1")
                resource.resource.Pack(_listener(port))
            yield response

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "envoy.service.discovery.v3.AggregatedDiscoveryService",
                {
                    "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(
                        stream,
                        discovery_pb2.DeltaDiscoveryRequest.FromString,
                        discovery_pb2.DeltaDiscoveryResponse.SerializeToString,
                    )
                },
            ),
        )
    )
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


def _listener(port: int) -> listener_pb2.Listener:
    routes = [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]
    manager = {
        "@type": TYPE + "network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": TYPE + "http.router.v3.Router"}}],
    }
    return json_format.ParseDict(
        {
            "name": "web",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        },
        listener_pb2.Listener(),
    )
