"""What a proxy tells of its connections to backends, before anything is concluded from it.

access log ──> ConnectionOutcome   one connection that was made, or was not; made ones are sampled
statistics ──> Counts    everything, and exact; without words
"""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.observation import LeafCertificate
from lasthop.engine.plan.upstream import Connection, Hop


class ConnectionOutcome(msgspec.Struct, frozen=True):
    """What one request, or one connection of a stream, has shown of an endpoint."""

    hop: Hop
    address: str
    """Empty where there is no endpoint."""
    at: float
    """Unix time."""
    failure: str = ""
    """Why there is no connection, in words; empty: there is one."""
    handshake: bool = False
    """The TLS handshake has failed, not the connection before it."""
    connected: bool = False
    """For all that the proxy could see, the connection was made, and ended without an answer."""
    request: bool = False
    """The connection was made, and the proxy answered the request with an error of its own: none came from the backend, or
    none that is HTTP."""
    refused: str = ""
    """The words if Envoy counts a TLS error of that backend as well: with TLS 1.3 a backend refuses the client's certificate
    after the handshake."""
    doubtful: bool = False
    """The connection ended without a byte from the backend, which may be the client's doing. It is a failure if Envoy counts a
    TLS error of that backend as well."""
    certificate: LeafCertificate | None = None
    tls_version: str = ""
    cipher: str = ""
    config: str = ""
    """Under which configuration of the hop (`Connection.config`)."""


class ServedRequest(msgspec.Struct, frozen=True):
    """One request that was answered, or one connection of a stream that has ended."""

    route: Key | None
    hop: Hop | None
    status: int
    seconds: float
    weight: float = 1.0
    """How many it stands for."""


class HopCounts(msgspec.Struct, frozen=True):
    """Since the proxy began, or since the cluster did: it may begin anew when the cluster is replaced."""

    connections: int = 0
    """That were tried."""
    connect_failures: int = 0
    handshakes: int = 0
    tls_failures: dict[str, int] = {}
    """By Envoy's own names."""
    active: int = 0
    """Requests under way; of a stream, connections."""
    requests: int = 0
    """That were sent on some connection; of a stream, connections that were made."""
    connect_timeouts: int = 0
    """Of the connect failures, those that took too long."""
    ejected: int = 0
    """Endpoints that get no traffic now, because connections to them keep failing."""


class EndpointCounts(msgspec.Struct, frozen=True):
    connections: int = 0
    """That were tried."""
    connect_failures: int = 0
    answers: int = 0
    """Requests that the backend has answered, other than with 5xx; none of a stream."""
    ejected: bool = False


Counts = dict[Connection, HopCounts]
EndpointsCounted = dict[Connection, dict[str, EndpointCounts]]
"""By address."""
