"""One xDS resource, encoded once: what the xDS server sends and what its versions are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from lasthop.api.meta import Key

CLUSTER: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

TYPES: Final = (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES)


def content_hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class Resource(msgspec.Struct, frozen=True):
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
        return f"Resource({self.type_url.rsplit('.', 1)[-1]} {self.name}@{self.version[:8]}, {len(self.body)} B)"


class Withdrawal(msgspec.Struct, frozen=True):
    """The resource is no longer to be served. `urgent`: it must go before anything else is sent (fail closed); otherwise
    it goes last, when nothing names it any more (make before break)."""

    urgent: bool


Change = Resource | Withdrawal
Changes = Mapping[str, Mapping[str, Change]]
"""By type URL, then by resource name."""
