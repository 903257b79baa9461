"""ExternalAuth filters (GEP-1494): a server authorizes each request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lasthop.base.api.routes import HTTPExternalAuthFilter
from lasthop.engine.plan.limits import Limits, over
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.routing import ExternalAuth
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.routing.http_syntax import HEADER_NAME, PATH, PATH_LENGTH, PROTECTED, shown

PROTOCOLS: Final = {"HTTP": Protocol.AUTO, "GRPC": Protocol.H2}
"""The protocol of the hop to the server, independent of the protocol to the rule's backends."""

_ODD_PATH: Final = re.compile(r"(^|/)\.{1,2}(/|$)|//|%2[ef]", re.IGNORECASE)
"""Paths that a server could interpret as another path."""
_ALWAYS_SENT: Final = frozenset({"host", "content-length"})
"""Headers that are always sent; content-length describes the request to the server."""


def external_auth(wanted: HTTPExternalAuthFilter, hop: Hop) -> ExternalAuth:
    grpc = hop.protocol is Protocol.H2
    path = wanted.http.path.strip("/")
    return ExternalAuth(
        hop,
        f"/{path}" if path and not grpc else "",
        _names(wanted.grpc.allowed_headers if grpc else wanted.http.allowed_headers),
        () if grpc else _names(wanted.http.allowed_response_headers),
        wanted.forward_body.max_size,
    )


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({name.lower() for name in names}))


def problems(wanted: HTTPExternalAuthFilter, field: str, limits: Limits) -> Iterator[Problem]:
    """Yields unsupported settings. A rule with any of them refuses all requests, because none may pass without
    authorization."""
    if wanted.protocol not in PROTOCOLS:
        message = "server and protocol are missing; set protocol HTTP or GRPC and a backendRef"
        yield unsupported_value(message, field)
        return
    path = wanted.http.path
    if _ODD_PATH.search(path) or not PATH.fullmatch(path) or len(path) > PATH_LENGTH:
        message = f"{shown(path)} may mean another path to the server; write it without empty, dotted or escaped parts"
        yield unsupported_value(message, f"{field}.http.path")
    for config, names, never in (
        ("http.allowedHeaders", wanted.http.allowed_headers, PROTECTED - _ALWAYS_SENT),
        ("http.allowedResponseHeaders", wanted.http.allowed_response_headers, PROTECTED),
        ("grpc.allowedHeaders", wanted.grpc.allowed_headers, frozenset[str]()),
    ):
        for name in names:
            if name.lower() in never or not HEADER_NAME.fullmatch(name):
                message = f"header {shown(name)} cannot be forwarded; remove it"
                yield unsupported_value(message, f"{field}.{config}")
    if wanted.forward_body.max_size > limits.forward_body_bytes:
        message = f"maxSize {wanted.forward_body.max_size:,}; {over(limits, 'forward_body_bytes')}"
        yield unsupported_value(message, f"{field}.forwardBody")
    if wanted.forward_body.max_size < 0:
        message = f"maxSize {wanted.forward_body.max_size} is negative; write 0 or more"
        yield unsupported_value(message, f"{field}.forwardBody")
