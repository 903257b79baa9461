# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from xds.type.v3.cel_pb2 import CelExpression

class CELSamplerConfig(Message):
    expression: One[CelExpression] = ...
