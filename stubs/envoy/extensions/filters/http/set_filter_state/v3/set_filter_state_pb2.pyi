# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Many, Message
from envoy.extensions.filters.common.set_filter_state.v3.value_pb2 import FilterStateValue

class Config(Message):
    on_request_headers: Many[FilterStateValue] = ...
