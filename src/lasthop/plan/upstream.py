"""The last hop itself: from a Gateway to a port of a Service."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from lasthop.api.meta import Key


class Protocol(StrEnum):
    """What the gateway speaks on a hop. It belongs to who is asking, so it is part of the hop's name."""

    AUTO = "auto"
    """HTTP: over TLS whatever ALPN picks of h2 and http/1.1; in plaintext what the Service's appProtocol says."""
    H1_UPGRADE = "h1-upgrade"
    """HTTP/1.1 only, for requests that ask for an upgrade: WebSocket over h2 is more than most backends do."""


class Hop(NamedTuple):
    """Names a cluster, for ever: policies decide only what stands behind the name, so no policy edit touches a route."""

    gateway: Key
    service: Key
    port: int
    protocol: Protocol

    @property
    def name(self) -> str:
        return f"{self.gateway.path}/{self.service.path}/{self.port}/{self.protocol}"

    @property
    def ours(self) -> bool:
        """TLS to the backend, if there is any, is the Gateway's own: neither the client's nor impossible."""
        return self.protocol.value not in ("passthrough", "udp")


class EndpointsKind(StrEnum):
    ADDRESSES = "addresses"
    """IP addresses, sent apart from the cluster so that an endpoint edit is not a cluster edit."""
    DNS = "dns"
    """Names that the proxy resolves itself."""


class Endpoint(msgspec.Struct, frozen=True, order=True):
    address: str
    port: int


class Endpoints(msgspec.Struct, frozen=True):
    kind: EndpointsKind
    endpoints: tuple[Endpoint, ...] = ()


class Upstream(msgspec.Struct, frozen=True):
    """What a plaintext or TLS hop needs besides its TLS settings."""

    h2c: bool
    """The Service says that it speaks HTTP/2 in plaintext."""
    endpoints: EndpointsKind
