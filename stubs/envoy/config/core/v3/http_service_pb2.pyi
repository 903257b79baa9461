# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Many, Message
from envoy.config.core.v3.base_pb2 import HeaderValueOption

class HttpService(Message):
    request_headers_to_add: Many[HeaderValueOption] = ...
