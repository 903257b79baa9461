# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar

from _protobuf import Message, One

class SocketAddress(Message):
    class Protocol(int): ...
    TCP: ClassVar[SocketAddress.Protocol]
    UDP: ClassVar[SocketAddress.Protocol]
    ADDRESS_FIELD_NUMBER: ClassVar[int]
    protocol: SocketAddress.Protocol = ...
    address: str = ...
    port_value: int = ...

class Address(Message):
    SOCKET_ADDRESS_FIELD_NUMBER: ClassVar[int]
    socket_address: One[SocketAddress] = ...
