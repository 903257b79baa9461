# Written by tools/envoy_stubs.py from the descriptors in xds-protos; `make stubs` writes it again.

from typing import ClassVar

from _protobuf import Message

class Percent(Message):
    value: float = ...

class FractionalPercent(Message):
    class DenominatorType(int): ...
    MILLION: ClassVar[FractionalPercent.DenominatorType]
    numerator: int = ...
    denominator: FractionalPercent.DenominatorType = ...
