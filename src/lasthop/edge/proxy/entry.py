"""Parses one line of Envoy's access log, in the format that `outputs/envoy` configures."""

from __future__ import annotations

from typing import Any

import msgspec

_LONGEST = 2_000
"""Characters of a field. Envoy truncates what clients send to much less, but does not truncate text from certificates."""


CUT = "..."
"""How a text ends of which there was more."""


class AccessLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one failed request. Fields that Envoy has no value for are None; strings are safe to print on a terminal."""

    time: str | None = None
    gateway: str | None = None
    authority: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    grpc_status: str | None = None
    """Its name, e.g. `Unavailable`; set for gRPC calls only."""
    flags: str | None = None
    """Envoy's response flags, e.g. `UF` (upstream connection failure), `NC` (no cluster)."""
    route: str | None = None
    """The route, `kind namespace/name`."""
    details: str | None = None
    upstream_cluster: str | None = None
    connection: str | None = None
    """The same with the configuration that the request met (`Connection`), for observation alone."""
    upstream_host: str | None = None
    tls_failure: str | None = None
    """Envoy's own text, which `failures.explain_failure` explains."""
    tls_version: str | None = None
    """Of the connection to the backend, where the handshake was completed."""
    policy: str | None = None
    """The BackendTLSPolicy of the cluster, `namespace/name`; or `XBackend namespace/name`."""
    wants: str | None = None
    """The names that the policy accepts, separated by commas."""
    shows: str | None = None
    """The Secret with the client certificate that is presented to the backend, `Secret namespace/name`."""
    duration_ms: float | None = None
    request_id: str | None = None
    upgrade: bool | None = None
    """The request asked for a WebSocket."""
    quiet: bool = False
    """It is not to be printed, only observed."""
    stands_for: float = 1.0
    """How many such requests there were: under load only a share is logged."""
    why: str | None = None
    """What went wrong, in words."""

    @property
    def failed(self) -> bool:
        return bool(self.why) or self.status is None or self.status >= 500


def parse(line: bytes) -> AccessLogEntry | None:
    """Returns None for a line in another format, such as half a line that was truncated."""
    try:
        entry = msgspec.json.decode(line, type=AccessLogEntry, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    texts = {name: shortened(value) for name, value in msgspec.structs.asdict(entry).items() if isinstance(value, str)}
    return msgspec.structs.replace(entry, **texts)


def document(entry: AccessLogEntry) -> dict[str, Any]:
    """Returns the entry for programs: without what Envoy has no value for."""
    left_out = {"quiet", "connection", *(["stands_for"] if entry.stands_for <= 1 else [])}
    fields = msgspec.structs.asdict(entry)
    return {name: value for name, value in fields.items() if value is not None and name not in left_out}


def shortened(text: str) -> str:
    """Truncates a text, so that the work does not grow with what a client or backend sends, and replaces what could move a
    cursor, change a colour or reverse the direction of text. Unlike `base/text/printable.py` it makes no text longer."""
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + CUT
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
