"""ExternalAuth filters (GEP-1494): a server that is asked whether a request may go on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lasthop.api.routes import HTTPExternalAuthFilter
from lasthop.plan import reasons
from lasthop.plan.routing import ExternalAuth, RouteProblem
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.header_names import HEADER_NAME, PROTECTED

PROTOCOLS: Final = {"HTTP": Protocol.AUTO, "GRPC": Protocol.H2}
"""What is spoken to the server, whatever is spoken to the backends of the rule."""

_ODD_PATH: Final = re.compile(r"(^|/)\.{1,2}(/|$)|//|%2f", re.IGNORECASE)
"""What a server could take for another path than the one that was written."""


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


def problems(wanted: HTTPExternalAuthFilter | None, field: str) -> Iterator[RouteProblem]:
    """What cannot be done; a rule that asks for it refuses, for it must not go on unasked."""
    if wanted is None or wanted.protocol not in PROTOCOLS:
        message = "which server is to be asked, and how, is not said; write protocol HTTP or GRPC and a backendRef"
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, field)
        return
    if _ODD_PATH.search(wanted.http.path):
        message = f"{wanted.http.path!r} may mean another path to the server; write it without empty, dotted or escaped parts"
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, f"{field}.http.path")
    for config, names in (("http", wanted.http.allowed_headers), ("grpc", wanted.grpc.allowed_headers)):
        for name in names:
            if not HEADER_NAME.fullmatch(name.removeprefix(":")):
                yield RouteProblem(
                    reasons.UNSUPPORTED_VALUE,
                    f"{name!r} is no name of a header; correct it",
                    f"{field}.{config}.allowedHeaders",
                )
    for name in wanted.http.allowed_response_headers:
        if name.lower() in PROTECTED or not HEADER_NAME.fullmatch(name):
            message = f"header {name!r} cannot be taken from the server's answer; remove it"
            yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, f"{field}.http.allowedResponseHeaders")
