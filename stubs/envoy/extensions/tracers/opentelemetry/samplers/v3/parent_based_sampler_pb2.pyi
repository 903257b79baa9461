# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig

class ParentBasedSamplerConfig(Message):
    wrapped_sampler: One[TypedExtensionConfig] = ...
