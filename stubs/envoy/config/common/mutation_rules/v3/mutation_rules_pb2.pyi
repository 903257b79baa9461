# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.type.matcher.v3.regex_pb2 import RegexMatcher

class HeaderMutationRules(Message):
    disallow_expression: One[RegexMatcher] = ...
