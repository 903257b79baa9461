# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.config.core.v3.base_pb2 import DataSource
from google.protobuf.struct_pb2 import Struct

class SubstitutionFormatString(Message):
    json_format: One[Struct] = ...
    text_format_source: One[DataSource] = ...
