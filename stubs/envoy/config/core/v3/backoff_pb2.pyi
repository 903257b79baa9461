# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from google.protobuf.duration_pb2 import Duration

class BackoffStrategy(Message):
    base_interval: One[Duration] = ...
    max_interval: One[Duration] = ...
