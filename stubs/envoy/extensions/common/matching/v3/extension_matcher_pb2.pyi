# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.config.common.matcher.v3.matcher_pb2 import Matcher
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from xds.type.matcher.v3.matcher_pb2 import Matcher as xds_type_matcher_v3_matcher_pb2_Matcher

class ExtensionWithMatcher(Message):
    matcher: One[Matcher] = ...
    xds_matcher: One[xds_type_matcher_v3_matcher_pb2_Matcher] = ...
    extension_config: One[TypedExtensionConfig] = ...

class ExtensionWithMatcherPerRoute(Message):
    xds_matcher: One[xds_type_matcher_v3_matcher_pb2_Matcher] = ...
