# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from google.protobuf.any_pb2 import Any

class Tracing(Message):
    class Http(Message):
        name: str = ...
        typed_config: One[Any] = ...

    http: One[Tracing.Http] = ...
