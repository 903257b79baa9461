"""Declares the common parts of all objects: the key, and the metadata that a gateway reads."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"


class Key(NamedTuple):
    """An object's identity. `kind` is one of `kinds.KINDS`; `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def argument(self) -> str:
        """The object as a command argument: `httproute/shop/web`."""
        return f"{self.kind.lower()}/{self.path}"

    # For names that another process returns: Envoy, an admin socket, an API server.

    @classmethod
    def read(cls, kind: str, path: str) -> Key:
        namespace, _, name = path.rpartition("/")
        return cls(kind, namespace, name)

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """Returns the key with this text, for example `HTTPRoute shop/web`; None for other texts."""
        kind, _, path = text.partition(" ")
        return cls.read(kind, path) if kind and path else None


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all API structs: immutable, hashable, compared by the fields we declare."""


class StringMap(tuple[tuple[str, str], ...]):
    """A frozen str -> str map as sorted pairs, so that objects holding one stay hashable."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Mapping[str, str] | None) -> StringMap:
        return cls(sorted((values or {}).items()))

    def get(self, key: str, default: str = "") -> str:
        return next((v for k, v in self if k == key), default)


class BytesMap(tuple[tuple[str, bytes], ...]):
    """Like StringMap, for the contents of a Secret, which its repr never shows."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Mapping[str, str] | None) -> BytesMap:
        return cls(sorted((k, base64.b64decode(v, validate=True)) for k, v in (values or {}).items()))

    def get(self, key: str) -> bytes | None:
        return next((v for k, v in self if k == key), None)

    def __repr__(self) -> str:
        return f"<{', '.join(f'{k}: {len(v)} bytes' for k, v in self)}>"


class PassedOn(tuple[str, ...]):
    """A Kubernetes value that is passed on unchanged: one JSON text with sorted keys, so that objects holding one stay
    hashable."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any) -> PassedOn:
        return cls((msgspec.json.encode(value, order="sorted").decode(),))

    @property
    def value(self) -> Any:
        return msgspec.json.decode(self[0])


UNDATED: Final = "1970-01-01T00:00:00Z"
"""The `creationTimestamp` of objects in files without one."""
LAST: Final = "none"
"""Sorts after every date."""


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    """RFC 3339 in UTC, so that text order is time order."""
    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()


class Object(Struct, frozen=True):
    """Base of all objects: the struct of a kind adds spec, data and other fields."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def age(self) -> tuple[str, str]:
        """Sorts oldest first, then by {namespace}/{name}: the tie-break that Gateway API uses everywhere. Namespace and name
        are compared as one text, because a hyphen sorts before the slash. Objects without a date sort last."""
        created = self.metadata.creation_timestamp
        return (LAST if created == UNDATED else created, f"{self.metadata.namespace}/{self.metadata.name}")
