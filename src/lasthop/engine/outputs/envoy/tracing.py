"""Tracing as Envoy's OpenTelemetry tracer. It is part of the connection manager, so that an edit drains connections.

Envoy never interprets users' texts as format commands. Literals and header names are in fields that Envoy does not format.
Percent signs are doubled in span names, and not permitted in export headers."""

from __future__ import annotations

from typing import Final

from envoy.config.core.v3 import base_pb2, grpc_service_pb2
from envoy.config.trace.v3 import http_tracer_pb2, opentelemetry_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.request_id.uuid.v3 import uuid_pb2
from envoy.type.tracing.v3 import custom_tag_pb2
from google.protobuf.wrappers_pb2 import BoolValue

from lasthop.engine.outputs.envoy.encode import packed, seconds
from lasthop.engine.outputs.envoy.sampling import sampler
from lasthop.engine.plan.telemetry import AttributeSource, SpanAttribute, TracingPlan

EXPORT_TIMEOUT: Final = 10.0
METHOD: Final = "%REQ(:METHOD)%"
"""The default span name: OpenTelemetry recommends few different ones."""
COMMANDS: Final = {
    "client.address": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "client.port": "%DOWNSTREAM_REMOTE_PORT%",
    "http.request.body.size": "%BYTES_RECEIVED%",
    "http.request.method": METHOD,
    "http.response.body.size": "%BYTES_SENT%",
    "http.response.status_code": "%RESPONSE_CODE%",
    "network.local.address": "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
    "network.local.port": "%DOWNSTREAM_LOCAL_PORT%",
    "network.peer.address": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
    "network.peer.port": "%DOWNSTREAM_DIRECT_REMOTE_PORT%",
    "network.protocol.name": "http",
    "rpc.grpc.status_code": "%GRPC_STATUS_NUMBER%",
    "server.address": "%REQ(:AUTHORITY)%",
    "server.port": "%DOWNSTREAM_LOCAL_PORT%",
    "tls.cipher": "%DOWNSTREAM_TLS_CIPHER%",
    "tls.client.issuer": "%DOWNSTREAM_PEER_ISSUER%",
    "tls.client.server_name": "%REQUESTED_SERVER_NAME%",
    "tls.client.subject": "%DOWNSTREAM_PEER_SUBJECT%",
    "url.path": "%PATH(NQ:ORIG_OR_PATH)%",
    "url.scheme": "%REQ(:SCHEME)%",
    "user_agent.original": "%REQ(USER-AGENT)%",
}
"""Envoy's format commands for OpenTelemetry's semantic conventions."""


def trace(manager: hcm_pb2.HttpConnectionManager, plan: TracingPlan) -> None:
    manager.tracing.CopyFrom(
        hcm_pb2.HttpConnectionManager.Tracing(
            provider=http_tracer_pb2.Tracing.Http(name="envoy.tracers.opentelemetry", typed_config=packed(_provider(plan))),
            spawn_upstream_span=BoolValue(value=False),
            operation=_escaped(plan.span_name) or METHOD,
            custom_tags=[_tag(attribute) for attribute in plan.attributes],
        )
    )
    # The sampler decides, not the client's x-request-id; requests without one are traced too.
    identity = uuid_pb2.UuidRequestIdConfig(
        pack_trace_reason=BoolValue(value=False), use_request_id_for_trace_sampling=BoolValue(value=False)
    )
    manager.request_id_extension.typed_config.CopyFrom(packed(identity))


def _provider(plan: TracingPlan) -> opentelemetry_pb2.OpenTelemetryConfig:
    hop = plan.collector
    to = grpc_service_pb2.GrpcService.EnvoyGrpc(
        cluster_name=hop.name,
        authority=f"{hop.backend.name}.{hop.backend.namespace}.svc:{hop.port}",
        skip_envoy_headers=True,
    )
    service = grpc_service_pb2.GrpcService(
        envoy_grpc=to,
        timeout=seconds(EXPORT_TIMEOUT),
        initial_metadata=[base_pb2.HeaderValue(key=name, value=value) for name, value in plan.headers],
    )
    return opentelemetry_pb2.OpenTelemetryConfig(
        grpc_service=service, service_name=plan.service_name, sampler=sampler(plan.share, plan.parents_share)
    )


def _tag(attribute: SpanAttribute) -> custom_tag_pb2.CustomTag:
    tag = custom_tag_pb2.CustomTag(tag=attribute.name)
    match attribute.source:
        case AttributeSource.LITERAL:
            tag.literal.value = attribute.value
        case AttributeSource.HEADER:
            tag.request_header.name = attribute.value
        case AttributeSource.REQUEST:
            tag.value = COMMANDS[attribute.value]
    return tag


def _escaped(text: str) -> str:
    """Doubles percent signs, which would start one of Envoy's format commands."""
    return text.replace("%", "%%")
