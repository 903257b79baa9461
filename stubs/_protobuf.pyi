"""The kinds of fields that Envoy's messages have. Stub files alone import it; there is no such module at run time.

A message is typed like a dataclass: each field is at once an attribute and a keyword argument of the constructor. What the
constructor takes differs from what the attribute holds, so a field that is more than a scalar is a descriptor. Its `__get__`
types the attribute and its `__set__` types the argument. Such a field can not be assigned to, only copied into or extended;
`Never` makes mypy say so.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, Never, TypeVar, dataclass_transform

from google.protobuf import message
from google.protobuf.descriptor import Descriptor
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)

M = TypeVar("M", bound=message.Message)
S = TypeVar("S", bound=bool | int | float | str | bytes)
K = TypeVar("K", bound=bool | int | str)

@dataclass_transform(kw_only_default=True, eq_default=False)
class Message(message.Message):
    DESCRIPTOR: Descriptor

class One(Generic[M]):
    def __get__(self, owner: object, kind: object) -> M: ...
    def __set__(self, owner: Never, value: M | None) -> None: ...

class Many(Generic[M]):
    def __get__(self, owner: object, kind: object) -> RepeatedCompositeFieldContainer[M]: ...
    def __set__(self, owner: Never, value: Iterable[M]) -> None: ...

class Scalars(Generic[S]):
    def __get__(self, owner: object, kind: object) -> RepeatedScalarFieldContainer[S]: ...
    def __set__(self, owner: Never, value: Iterable[S]) -> None: ...

class MapOf(Generic[K, M]):
    def __get__(self, owner: object, kind: object) -> MessageMap[K, M]: ...
    def __set__(self, owner: Never, value: Mapping[K, M]) -> None: ...

class ScalarMapOf(Generic[K, S]):
    def __get__(self, owner: object, kind: object) -> ScalarMap[K, S]: ...
    def __set__(self, owner: Never, value: Mapping[K, S]) -> None: ...
