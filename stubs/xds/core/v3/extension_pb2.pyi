# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar

from _protobuf import Message, One
from google.protobuf.any_pb2 import Any

class TypedExtensionConfig(Message):
    TYPED_CONFIG_FIELD_NUMBER: ClassVar[int]
    name: str = ...
    typed_config: One[Any] = ...
