# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

class AccessLogType(int): ...

TcpConnectionEnd: AccessLogType
DownstreamEnd: AccessLogType
