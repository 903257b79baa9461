# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.type.v3.percent_pb2 import FractionalPercent

class TraceIdRatioBasedSamplerConfig(Message):
    sampling_percentage: One[FractionalPercent] = ...
