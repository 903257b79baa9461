"""Encodes DeltaDiscoveryResponses. For the session and its tests, a response is a plain value.

The bodies are already encoded, so encoding a response only joins them. For clusters of 1 kB, fifty in a response, this takes 5
us each, where protobuf takes 3 us. For a cluster with a bundle of 200 kB it takes 11 us instead of 1,000 us, and for a route
table of 5 MB 0.2 ms instead of 15 ms.
"""

from __future__ import annotations

from typing import Final

import msgspec
from envoy.service.discovery.v3 import discovery_pb2 as discovery
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

from lasthop.edge.xds.cache import wire_version
from lasthop.engine.outputs.envoy.encode import enclosed
from lasthop.engine.outputs.envoy.resource import Resource, type_name


class Response(msgspec.Struct, frozen=True):
    type_url: str
    nonce: str
    generation: int
    """Generation of the cache, for readers of Envoy's config dump."""
    sent_at: float
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        added = ", ".join(f"{r.name}={r.version[:8]}" for r in self.resources)
        removed = ", ".join(f"-{name}" for name in self.removed)
        return f"Response({type_name(self.type_url)} #{self.nonce}: {', '.join(filter(None, (added, removed)))})"


LONGEST_TTL: Final = 10 * 365 * 86400.0
"""Seconds. Envoy rejects a response with a TTL of 292 years. A new connection gets a new TTL."""

_RESOURCES: Final = discovery.DeltaDiscoveryResponse.RESOURCES_FIELD_NUMBER
_RESOURCE: Final = discovery.Resource.RESOURCE_FIELD_NUMBER
_VALUE: Final = AnyMessage.VALUE_FIELD_NUMBER


def encode(response: Response) -> bytes:
    """Encodes the response without copying the bodies; protobuf would copy each several times."""
    message = discovery.DeltaDiscoveryResponse(
        system_version_info=str(response.generation),
        type_url=response.type_url,
        nonce=response.nonce,
        removed_resources=response.removed,
    )
    chunks, head = [message.SerializeToString()], AnyMessage(type_url=response.type_url).SerializeToString()
    for resource in response.resources:
        ttl = _ttl(resource.expires, response.sent_at)
        frame = discovery.Resource(name=resource.name, version=wire_version(resource), ttl=ttl).SerializeToString()
        packed = enclosed(_RESOURCE, [head, *enclosed(_VALUE, [resource.body])])
        chunks += enclosed(_RESOURCES, [frame, *packed])
    return b"".join(chunks)


def _ttl(expires: float | None, now: float) -> Duration | None:
    if expires is None:
        return None
    # Envoy counts in milliseconds, and zero would disable the timer.
    seconds, milliseconds = divmod(max(1, int(min(expires - now, LONGEST_TTL) * 1000)), 1000)
    return Duration(seconds=seconds, nanos=milliseconds * 1_000_000)
