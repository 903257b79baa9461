"""Parses one line of Envoy's access log, in the format that `outputs/envoy` configures."""

from __future__ import annotations

from typing import Any

import msgspec

from lasthop.base.text.printable import printable

_LONGEST = 2_000
"""Characters of a field. Envoy truncates texts of clients to much less, but not texts from certificates."""


CUT = "..."
"""Marks the end of a truncated text."""


class AccessLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Represents one request in the log of failures. Fields without a value in Envoy are None; strings are safe to print on a
    terminal."""

    time: str | None = None
    gateway: str | None = None
    authority: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    grpc_status: str | None = None
    """The name of the gRPC status, e.g. `Unavailable`; set for gRPC calls only."""
    flags: str | None = None
    """Envoy's response flags, e.g. `UF` (upstream connection failure), `NC` (no cluster)."""
    route: str | None = None
    """The route, `kind namespace/name`."""
    details: str | None = None
    upstream_cluster: str | None = None
    connection: str | None = None
    """The cluster with its configuration at that time (`Connection`), for observation only."""
    upstream_host: str | None = None
    tls_failure: str | None = None
    """Envoy's own text, which `failures.explained` explains."""
    tls_version: str | None = None
    """TLS version of the connection to the backend, if the handshake was completed."""
    policy: str | None = None
    """The BackendTLSPolicy of the cluster, `namespace/name`; or `XBackend namespace/name`."""
    wants: str | None = None
    """The names that the policy accepts, separated by commas."""
    shows: str | None = None
    """The Secret of the client certificate that is presented to the backend, `Secret namespace/name`."""
    duration_ms: float | None = None
    request_id: str | None = None
    upgrade: bool | None = None
    """The request has an upgrade to a WebSocket."""
    quiet: bool = False
    """The entry is evidence for observations, and is not printed."""
    stands_for: float = 1.0
    """The number of requests that the entry represents: under load only a share is logged."""
    why: str | None = None
    """The reason of the failure."""
    advice: str | None = None
    """The command that shows more about it."""

    @property
    def failed(self) -> bool:
        return bool(self.why) or self.status is None or self.status >= 500


def parse(line: bytes) -> AccessLogEntry | None:
    """Returns None for a line in another format, such as a truncated line."""
    try:
        entry = msgspec.json.decode(line, type=AccessLogEntry, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    texts = {name: shown(value) for name, value in msgspec.structs.asdict(entry).items() if isinstance(value, str)}
    return msgspec.structs.replace(entry, **texts)


def document(entry: AccessLogEntry) -> dict[str, Any]:
    """Returns the entry as JSON, without empty and internal fields."""
    left_out = {"quiet", "connection", *(["stands_for"] if entry.stands_for <= 1 else [])}
    fields = msgspec.structs.asdict(entry)
    return {name: value for name, value in fields.items() if value is not None and name not in left_out}


def shown(text: str) -> str:
    """Sanitizes a text of a client or a backend for display."""
    return printable(text, _LONGEST, CUT)
