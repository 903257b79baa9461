"""An OTLP receiver: receives spans over gRPC, with or without TLS, and stores them with their metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.certificates import Certificate

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Span(NamedTuple):
    name: str
    service: str
    attributes: dict[str, str]
    trace_id: str
    parent_id: str
    metadata: dict[str, str]
    """Of the call that brought it."""

    @property
    def host(self) -> str:
        """Whom the request was for."""
        return self.attributes["http.url"].partition("://")[2].partition("/")[0]


class Collector(NamedTuple):
    port: int
    spans: list[Span]

    def of(self, host: str) -> list[Span]:
        return [span for span in list(self.spans) if span.host == host]


class _Receiver(grpc.GenericRpcHandler):
    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return grpc.unary_unary_rpc_method_handler(self._export) if details.method == EXPORT else None

    def _export(self, asked: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = {name: str(value) for name, value in context.invocation_metadata()}
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(asked)
        self._spans += (span for resource in request.resource_spans for span in _spans(resource, metadata))
        return bytes(trace_service_pb2.ExportTraceServiceResponse().SerializeToString())


def _spans(resource: Any, metadata: dict[str, str]) -> Iterator[Span]:
    service = _values(resource.resource.attributes).get("service.name", "")
    # The name that `scope_spans` had before OTLP 1.0; the bytes are the same.
    for span in (span for scope in resource.instrumentation_library_spans for span in scope.spans):
        ids = (span.trace_id.hex(), span.parent_span_id.hex())
        yield Span(span.name, service, _values(span.attributes), *ids, metadata)


def _values(attributes: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}


@contextlib.contextmanager
def collector(certificate: Certificate | None = None, port: int = 0) -> Iterator[Collector]:
    """With a certificate: TLS only."""
    spans: list[Span] = []
    running = grpc.server(ThreadPoolExecutor(2), handlers=[_Receiver(spans)])
    if certificate:
        pair = (certificate.key_pem.encode(), certificate.pem.encode())
        port = running.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair]))
    else:
        port = running.add_insecure_port(f"127.0.0.1:{port}")
    running.start()
    try:
        yield Collector(port, spans)
    finally:
        running.stop(0).wait()
