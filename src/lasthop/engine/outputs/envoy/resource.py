"""xDS resources, encoded once, with version and parts."""

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
    """Returns the short name of a type URL: `Cluster`."""
    return type_url.rpartition(".")[2]


def content_hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def endpoints_name(cluster: str, version: str) -> str:
    return f"{cluster}@{version}"


def cluster_of(endpoints: str) -> str:
    """Returns the cluster of an `endpoints_name`, the only key by which Envoy requests endpoints."""
    return endpoints.rpartition("@")[0]


class Joined(Mapping[str, V]):
    """Joins several mappings lazily: a route table has thousands of parts, and only a NACK needs them."""

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
    """A mapping with one key, in a quarter of a dict's memory. Most resources have one part."""

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
    """The parts that a NACK can be narrowed to, as part id -> content hash. A cluster or Secret is its own part; a route table
    has a part per route object and hostname; a listener has a part per filter chain."""
    expires: float | None = None
    """Unix time at which Envoy itself must forget the resource, even if the controller is dead."""
    heavy: bool = False
    """Costs Envoy milliseconds to load (a system-size bundle), so a response contains fewer of them."""
    owners: Mapping[str, Key] = msgspec.field(default_factory=dict)
    """Part id -> the object at fault if Envoy refuses the part; without an entry, the Gateway."""

    def __repr__(self) -> str:
        return f"Resource({type_name(self.type_url)} {self.name}@{self.version[:8]}, {len(self.body)} B)"


class Part(NamedTuple):
    """One part of a resource with one content, the unit that a NACK is narrowed down to."""

    type_url: str
    id: str
    hash: str
    owner: Key | None = None
    """The object at fault if Envoy refuses the part; None means the Gateway."""


def parts_of(resource: Resource) -> Iterator[Part]:
    for id, hash in resource.parts.items():
        yield Part(resource.type_url, id, hash, resource.owners.get(id))


class Withdrawal(msgspec.Struct, frozen=True):
    """Removes a resource. If `urgent`, before all other updates (fail closed); otherwise last, when nothing refers to it any
    more (make before break)."""

    urgent: bool


Change = Resource | Withdrawal
Changes = Mapping[str, Mapping[str, Change]]
"""Changes by type URL and resource name."""
