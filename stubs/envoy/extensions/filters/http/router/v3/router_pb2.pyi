# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Many, Message, One
from envoy.config.accesslog.v3.accesslog_pb2 import AccessLog
from google.protobuf.wrappers_pb2 import BoolValue

class Router(Message):
    dynamic_stats: One[BoolValue] = ...
    upstream_log: Many[AccessLog] = ...
    suppress_envoy_headers: bool = ...
