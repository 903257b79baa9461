# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar

from _protobuf import Many, Message
from envoy.config.endpoint.v3.endpoint_components_pb2 import LocalityLbEndpoints

class ClusterLoadAssignment(Message):
    CLUSTER_NAME_FIELD_NUMBER: ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: ClassVar[int]
    cluster_name: str = ...
    endpoints: Many[LocalityLbEndpoints] = ...
