"""One xDS resource, encoded once: what the xDS server sends and what its versions are made of."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from lasthop.base.api.meta import Key

CLUSTER: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

TYPES: Final = (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES)


V = TypeVar("V")


def type_name(type_url: str) -> str:
    """Returns `Cluster` of a type URL."""
    return type_url.rpartition(".")[2]


def content_hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def endpoints_name(cluster: str, version: str) -> str:
    return f"{cluster}@{version}"


def cluster_of(endpoints: str) -> str:
    """Returns the cluster that `endpoints_name` was made for. Envoy asks for endpoints by nothing but this name."""
    return endpoints.rpartition("@")[0]


class Joined(Mapping[str, V]):
    """Several mappings as one, put together when somebody asks: a route table has thousands of parts, and only a refusal
    asks for them."""

    def __init__(self, pieces: Iterable[Mapping[str, V]]) -> None:
        self._pieces = tuple(pieces)

    @functools.cached_property
    def _whole(self) -> dict[str, V]:
        return {key: value for piece in self._pieces for key, value in piece.items()}

    def __getitem__(self, key: str) -> V:
        return self._whole[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


class Single(Mapping[str, V]):
    """One key and its value, in a quarter of a dict's memory: most resources have one part."""

    __slots__ = ("_key", "_value")

    def __init__(self, key: str, value: V) -> None:
        self._key, self._value = key, value

    def __getitem__(self, key: str) -> V:
        if key != self._key:
            raise KeyError(key)
        return self._value

    def __iter__(self) -> Iterator[str]:
        yield self._key

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"{{{self._key!r}: {self._value!r}}}"


def mapping(pairs: Sequence[tuple[str, V]]) -> Mapping[str, V]:
    return Single(*pairs[0]) if len(pairs) == 1 else dict(pairs)


class Resource(msgspec.Struct, frozen=True, gc=False):
    """`body` is the serialised message (not yet in an Any). Equal bytes have equal versions, on every replica."""

    type_url: str
    name: str
    body: bytes
    version: str
    parts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What a NACK can be narrowed to: part id -> content hash (a cluster or Secret has one part, itself; a route table one for
    each route object under each hostname; a listener one for each filter chain)."""
    expires: float | None = None
    """Unix time at which Envoy itself must forget the resource, even if the controller is dead."""
    heavy: bool = False
    """Costs Envoy milliseconds to take in (a system-size bundle), so fewer of them go into one response."""
    owners: Mapping[str, Key] = msgspec.field(default_factory=dict)
    """Part id -> the object that is at fault if Envoy refuses the part; the Gateway where there is none."""

    def __repr__(self) -> str:
        return f"Resource({type_name(self.type_url)} {self.name}@{self.version[:8]}, {len(self.body)} B)"


class Part(NamedTuple):
    """What a NACK is narrowed down to: one part of a resource at one content."""

    type_url: str
    id: str
    hash: str
    owner: Key | None = None
    """The object that is at fault if this is; None: the Gateway."""


def parts_of(resource: Resource) -> Iterator[Part]:
    for id, hash in resource.parts.items():
        yield Part(resource.type_url, id, hash, resource.owners.get(id))


class Withdrawal(msgspec.Struct, frozen=True):
    """The resource is no longer to be served. `urgent`: it must go before anything else is sent (fail closed); otherwise
    it goes last, when nothing names it any more (make before break)."""

    urgent: bool


Change = Resource | Withdrawal
Changes = Mapping[str, Mapping[str, Change]]
"""By type URL, then by resource name."""
