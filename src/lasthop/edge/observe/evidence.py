"""Declares the evidence that a proxy collects about its connections to backends, before any verdict.

access log ──> ConnectionOutcome   one connection that succeeded or failed; successful ones are sampled
statistics ──> Counts              every connection, exact, without a reason
"""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.observation import LeafCertificate
from lasthop.engine.plan.upstream import Connection, Hop


class ConnectionOutcome(msgspec.Struct, frozen=True):
    """The result of one request, or of one connection of a stream, at an endpoint."""

    hop: Hop
    address: str
    """Empty if the hop has no endpoint."""
    at: float
    """Unix time."""
    failure: str = ""
    """The reason why the connection failed; empty after a success."""
    handshake: bool = False
    """The TLS handshake failed after the TCP connection succeeded."""
    connected: bool = False
    """The connection succeeded as far as the proxy could see, and ended without a response."""
    request: bool = False
    """The connection succeeded, and the proxy answered the request with an error of its own, because the backend sent no
    valid HTTP response."""
    refused: str = ""
    """The reason to use if Envoy also counts a TLS error of that backend: with TLS 1.3 a backend rejects the client's
    certificate after the handshake."""
    doubtful: bool = False
    """The connection ended without a byte from the backend, perhaps because of the client. It is a failure if Envoy also
    counts a TLS error of that backend."""
    certificate: LeafCertificate | None = None
    tls_version: str = ""
    cipher: str = ""
    config: str = ""
    """The configuration of the hop at that time (`Connection.config`)."""


class ServedRequest(msgspec.Struct, frozen=True):
    """Represents a completed request, or a closed connection of a stream."""

    route: Key | None
    hop: Hop | None
    status: int
    seconds: float
    weight: float = 1.0
    """The number of requests that this sample represents."""


class HopCounts(msgspec.Struct, frozen=True):
    """Counts since the proxy or the cluster started. They may restart when the cluster is replaced."""

    connections: int = 0
    """Attempts."""
    connect_failures: int = 0
    handshakes: int = 0
    tls_failures: dict[str, int] = {}
    """Counts by Envoy's name of the failure."""
    active: int = 0
    """Requests in progress; for a stream, open connections."""
    requests: int = 0
    """Requests sent on a connection; for a stream, successful connections."""
    connect_timeouts: int = 0
    """Connect failures that were timeouts."""
    ejected: int = 0
    """Endpoints that receive no traffic now because connections to them keep failing."""


class EndpointCounts(msgspec.Struct, frozen=True):
    connections: int = 0
    """Attempts."""
    connect_failures: int = 0
    answers: int = 0
    """Responses of the backend other than 5xx; none for a stream."""
    ejected: bool = False


Counts = dict[Connection, HopCounts]
EndpointsCounted = dict[Connection, dict[str, EndpointCounts]]
"""Counts by connection and address."""
