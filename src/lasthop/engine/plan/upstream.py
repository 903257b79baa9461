"""The last hop itself: from a Gateway to a port of a Service or ServiceImport, or to an XBackend."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key


class Protocol(StrEnum):
    """The protocol of a hop. The route decides it, so it is part of the hop's name."""

    AUTO = "auto"
    """HTTP: over TLS whatever ALPN picks of h2 and http/1.1, for requests that ask for an upgrade http/1.1 alone: WebSocket
    over h2 is more than most backends do. In plaintext what the Service's appProtocol says."""
    H1_UPGRADE = "h1-upgrade"
    """HTTP/1.1 only: the upgrades of a backend whose appProtocol is h2c, where no ALPN can pick another protocol for them."""
    H2 = "h2"
    """HTTP/2 only, whatever the Service's appProtocol says: gRPC."""
    TCP = "tcp"
    """The bytes of a connection, as they are or inside TLS."""
    PASSTHROUGH = "passthrough"
    """The bytes of a connection that the client encrypts for the backend: that TLS is not the gateway's, which adds none."""
    UDP = "udp"

    @property
    def transport(self) -> str:
        return "UDP" if self is Protocol.UDP else "TCP"

    @property
    def http(self) -> bool:
        return self not in (Protocol.TCP, Protocol.PASSTHROUGH, Protocol.UDP)

    @property
    def policed(self) -> bool:
        """Whether BackendTLSPolicy applies."""
        return self not in (Protocol.PASSTHROUGH, Protocol.UDP)


CLUSTER_STATS: Final = "cluster."
"""What Envoy puts before a cluster's name, and a dot and what is counted after it."""
_PROTOCOLS: Final = frozenset(map(str, Protocol))
_PORT: Final = re.compile("[0-9]{1,5}", re.ASCII)


class Hop(NamedTuple):
    """Names a cluster for good: policies decide only on its content, so no policy edit touches a route."""

    gateway: Key
    backend: Key
    """A Service, a ServiceImport or an XBackend."""
    port: int
    protocol: Protocol

    @property
    def name(self) -> str:
        kind = "" if self.backend.kind == "Service" else f"{self.backend.kind}/"
        return f"{self.gateway.path}/{kind}{self.backend.path}/{self.port}/{self.protocol}"

    @property
    def for_upgrades(self) -> Hop | None:
        """Returns what upgrades over this hop are observed as: they ask a backend for another protocol than requests do, so
        one may fail where the other works. Only a backend that speaks h2c has a cluster of that name, too."""
        return Hop(*self[:3], Protocol.H1_UPGRADE) if self.protocol is Protocol.AUTO else None

    @classmethod
    def parse(cls, name: str) -> Hop | None:
        """Returns the hop of that name; None if it is no hop's."""
        match name.split("/"):
            case [namespace, gateway, *kind, of, backend, port, protocol] if len(kind) < 2 and _PORT.fullmatch(port):
                if protocol in _PROTOCOLS:
                    to = Key(kind[0] if kind else "Service", of, backend)
                    return cls(Key("Gateway", namespace, gateway), to, int(port), Protocol(protocol))
        return None


class Connection(NamedTuple):
    """A hop as it is connected under one configuration. Envoy logs and counts under this name: evidence of one configuration
    says nothing about another."""

    hop: Hop
    config: str = ""
    """The identity of the TLS (`cluster_metadata.identity`). Empty: not known, so it is no configuration's evidence."""

    @property
    def name(self) -> str:
        return f"{self.hop.name}@{self.config}"

    @classmethod
    def parse(cls, name: str) -> Connection | None:
        """Returns the connection of that name; None if it is no hop's."""
        cluster, _, config = name.rpartition("@")
        hop = Hop.parse(cluster)
        return cls(hop, config) if hop and config else None

    @classmethod
    def parse_stat(cls, name: str) -> tuple[Connection, str] | None:
        """Returns the connection and what is counted, of Envoy's `cluster.shop/web/shop/api/443/auto@2f1c.ssl.handshake`. The
        cluster's name may contain dots, but not after its last slash."""
        before, slash, last = name.removeprefix(CLUSTER_STATS).rpartition("/")
        end, _, stat = last.partition(".")
        connection = cls.parse(f"{before}{slash}{end}")
        return (connection, stat) if connection else None


class EndpointsKind(StrEnum):
    ADDRESSES = "addresses"
    """IP addresses, sent apart from the cluster so that an endpoint edit is not a cluster edit."""
    DNS = "dns"
    """Names that the proxy resolves itself."""


class EndpointAddress(msgspec.Struct, frozen=True, order=True, gc=False):
    address: str
    port: int


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    kind: EndpointsKind
    endpoints: tuple[EndpointAddress, ...] = ()
