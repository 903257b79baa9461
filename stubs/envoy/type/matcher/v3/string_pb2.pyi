# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar

from _protobuf import Many, Message, One
from envoy.type.matcher.v3.regex_pb2 import RegexMatcher

class StringMatcher(Message):
    EXACT_FIELD_NUMBER: ClassVar[int]
    SAFE_REGEX_FIELD_NUMBER: ClassVar[int]
    exact: str = ...
    prefix: str = ...
    safe_regex: One[RegexMatcher] = ...

class ListStringMatcher(Message):
    patterns: Many[StringMatcher] = ...
