# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Many, Message
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

class ExportTraceServiceRequest(Message):
    resource_spans: Many[ResourceSpans] = ...

class ExportTraceServiceResponse(Message): ...
