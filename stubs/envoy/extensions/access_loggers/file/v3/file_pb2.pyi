# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.config.core.v3.substitution_format_string_pb2 import SubstitutionFormatString
from google.protobuf.struct_pb2 import Struct

class FileAccessLog(Message):
    path: str = ...
    json_format: One[Struct] = ...
    log_format: One[SubstitutionFormatString] = ...
