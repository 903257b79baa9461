# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message

class ExpressionFilter(Message):
    expression: str = ...
