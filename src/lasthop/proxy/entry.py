"""One line of Envoy's access log, as `outputs/envoy` has it written."""

from __future__ import annotations

import msgspec

_LONGEST = 2_000
"""Characters of a field. Envoy cuts what clients send much shorter; what backends' certificates say, it does not cut."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that Envoy has nothing for are None. Strings come from clients and certificates, but are fit for a terminal."""

    time: str | None = None
    gateway: str | None = None
    authority: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    grpc_status: str | None = None
    """Its name, e.g. `Unavailable`; only of gRPC calls is it set."""
    flags: str | None = None
    """Envoy's response flags, e.g. `UF` (upstream connection failure), `NC` (no cluster)."""
    route: str | None = None
    """The route, `kind namespace/name`."""
    details: str | None = None
    upstream_cluster: str | None = None
    upstream_host: str | None = None
    tls_failure: str | None = None
    """Envoy's own words; `failures.why` makes a sentence of them."""
    policy: str | None = None
    """The BackendTLSPolicy of the cluster, `namespace/name`; or `XBackend namespace/name`."""
    wants: str | None = None
    """The names that policy accepts, with commas between."""
    shows: str | None = None
    """The Secret with the client certificate that is shown to the backend, `Secret namespace/name`."""
    duration_ms: float | None = None
    request_id: str | None = None
    why: str | None = None
    """What went wrong, in words."""


def parse(line: bytes) -> Entry | None:
    """None for a line that is not one of ours, such as the first half of one that was cut off."""
    try:
        entry = msgspec.json.decode(line, type=Entry, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    texts = {name: printable(value) for name in Entry.__struct_fields__ if isinstance(value := getattr(entry, name), str)}
    return msgspec.structs.replace(entry, **texts)


def printable(text: str) -> str:
    """Returns the beginning of a text without anything that could move a cursor, change a colour or turn the direction of
    writing. It is cut first: the rest is for whoever wrote it to make long."""
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
