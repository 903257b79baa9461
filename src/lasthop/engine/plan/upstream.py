"""Hops: the connection from a Gateway to a port of a Service or ServiceImport, or to an XBackend."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key


class Protocol(StrEnum):
    """The protocol of a hop. The route decides it, so it is part of the hop's name."""

    AUTO = "auto"
    """HTTP. Over TLS, ALPN picks h2 or http/1.1; upgrade requests use http/1.1 only, because most backends do not support
    WebSocket over h2. In plaintext, the Service's appProtocol decides."""
    H1_UPGRADE = "h1-upgrade"
    """HTTP/1.1 only: upgrade requests to a backend whose appProtocol is h2c, because plaintext has no ALPN."""
    H2 = "h2"
    """HTTP/2 only, for gRPC. The Service's appProtocol is ignored."""
    TCP = "tcp"
    """The bytes of a connection, in plaintext or inside TLS."""
    PASSTHROUGH = "passthrough"
    """The bytes of a connection that the client encrypts for the backend. The gateway adds no TLS."""
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
"""Prefix of cluster statistics in Envoy. The cluster's name, a dot and the statistic follow."""
_PROTOCOLS: Final = frozenset(map(str, Protocol))
_PORT: Final = re.compile("[0-9]{1,5}", re.ASCII)


class Hop(NamedTuple):
    """The permanent name of a cluster. Policies decide only its content, so no edit of a policy touches a route."""

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
        """Returns the hop under which upgrades over this hop are observed. Upgrades use another protocol than requests, so one
        may fail while the other works. Only h2c backends also have a cluster of that name."""
        return Hop(*self[:3], Protocol.H1_UPGRADE) if self.protocol is Protocol.AUTO else None

    @classmethod
    def parse(cls, name: str) -> Hop | None:
        """Returns the hop with that name; None if the name has another form."""
        match name.split("/"):
            case [namespace, gateway, *kind, backend_namespace, backend, port, protocol] if len(kind) < 2 and _PORT.fullmatch(
                port
            ):
                if protocol in _PROTOCOLS:
                    target = Key(kind[0] if kind else "Service", backend_namespace, backend)
                    return cls(Key("Gateway", namespace, gateway), target, int(port), Protocol(protocol))
        return None


class Connection(NamedTuple):
    """A hop under one configuration. Envoy logs and counts by this name, because evidence for one configuration is not valid
    for another."""

    hop: Hop
    config: str = ""
    """The identity of the TLS (`cluster_metadata.identity`). Empty: not known, so the evidence does not count."""

    @property
    def name(self) -> str:
        return f"{self.hop.name}@{self.config}"

    @classmethod
    def parse(cls, name: str) -> Connection | None:
        """Returns the connection with that name; None if the name has another form."""
        cluster, _, config = name.rpartition("@")
        hop = Hop.parse(cluster)
        return cls(hop, config) if hop and config else None

    @classmethod
    def parse_stat(cls, name: str) -> tuple[Connection, str] | None:
        """Returns the connection and the statistic of Envoy's `cluster.shop/web/shop/api/443/auto@2f1c.ssl.handshake`. The
        cluster's name may contain dots, but not after its last slash."""
        before, slash, last = name.removeprefix(CLUSTER_STATS).rpartition("/")
        end, _, stat = last.partition(".")
        connection = cls.parse(f"{before}{slash}{end}")
        return (connection, stat) if connection else None


class EndpointsKind(StrEnum):
    ADDRESSES = "addresses"
    """IP addresses, sent by EDS so that an endpoint edit does not change the cluster."""
    DNS = "dns"
    """DNS names that the proxy resolves."""


class EndpointAddress(msgspec.Struct, frozen=True, order=True, gc=False):
    address: str
    port: int


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    kind: EndpointsKind
    endpoints: tuple[EndpointAddress, ...] = ()


MOST_RETRIES: Final = 10
LONGEST_EJECTION: Final = 3600


class ConnectRules(msgspec.Struct, frozen=True):
    """Rules for endpoints that refuse connections: Envoy retries on another endpoint and ejects the failing one for a while.
    Only requests that were not sent yet are retried, so no backend processes a request twice."""

    retries: int = 1
    """Retries of a request after a failed connection or TLS handshake, each on another endpoint. Routes with their own `retry`
    use their own number. Zero disables retries. An endpoint that does not answer costs one connect timeout per try."""
    ejection_seconds: int = 30
    """Ejection time of an endpoint to which connections keep failing. Zero disables ejection."""


class RetryBudget(msgspec.Struct, frozen=True):
    """Limits how many requests to one backend may be retries at a time, over all rules."""

    percent: float = 100.0
    """Share of the requests. LEAST_REQUEST prefers an endpoint that fails at once, so with one of two endpoints down, three
    quarters of the requests are retried until it is ejected."""
    interval: float = 0.0
    """Seconds over which requests are counted. Zero counts the active requests."""
    minimum: int = 100
    """Retries that are always allowed: if all requests fail at once, none is active."""
