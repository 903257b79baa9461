# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Many, Message
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

class Resource(Message):
    attributes: Many[KeyValue] = ...
