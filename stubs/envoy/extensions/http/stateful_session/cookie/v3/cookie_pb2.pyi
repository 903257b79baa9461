# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from envoy.type.http.v3.cookie_pb2 import Cookie

class CookieBasedSessionState(Message):
    cookie: One[Cookie] = ...
