# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.config.core.v3.substitution_format_string_pb2 import SubstitutionFormatString

class FilterStateValue(Message):
    object_key: str = ...
    format_string: One[SubstitutionFormatString] = ...
