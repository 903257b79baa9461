# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from google.protobuf.wrappers_pb2 import BoolValue

class UuidRequestIdConfig(Message):
    pack_trace_reason: One[BoolValue] = ...
    use_request_id_for_trace_sampling: One[BoolValue] = ...
