# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from google.protobuf.wrappers_pb2 import BoolValue

class Router(Message):
    dynamic_stats: One[BoolValue] = ...
    suppress_envoy_headers: bool = ...
