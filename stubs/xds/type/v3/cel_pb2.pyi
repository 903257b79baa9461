# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from _protobuf import Message, One
from cel.expr.syntax_pb2 import ParsedExpr

class CelExpression(Message):
    cel_expr_parsed: One[ParsedExpr] = ...
