"""ExternalAuth filters (GEP-1494): a server authorizes each request, of a rule or of a listener.

No request may bypass the filter of a listener. An unsupported filter, or one whose server reference is not permitted, closes
the listener. If the server cannot be reached, requests get 503, as with filters of routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api.meta import Key
from lasthop.base.api.routes import HTTPExternalAuthFilter
from lasthop.engine.plan.limits import Limits, over
from lasthop.engine.plan.listener import MAX_AUTH
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.routing import ExternalAuth
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import BackendTarget, target
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.routing.http_syntax import HEADER_NAME, PATH, PATH_LENGTH, PROTECTED, shown
from lasthop.engine.store.graph import Graph

PROTOCOLS: Final = {"HTTP": Protocol.AUTO, "GRPC": Protocol.H2}
"""The protocol of the hop to the server, independent of the protocol to the rule's backends."""

_ODD_PATH: Final = re.compile(r"(^|/)\.{1,2}(/|$)|//|%2[ef]", re.IGNORECASE)
"""Paths that a server could interpret as another path."""
_ALWAYS_SENT: Final = frozenset({"host", "content-length"})
"""Headers that are always sent; content-length describes the request to the server."""


def external_auth(filter: HTTPExternalAuthFilter, hop: Hop) -> ExternalAuth:
    grpc = hop.protocol is Protocol.H2
    path = filter.http.path.strip("/")
    return ExternalAuth(
        hop,
        f"/{path}" if path and not grpc else "",
        _names(filter.grpc.allowed_headers if grpc else filter.http.allowed_headers),
        () if grpc else _names(filter.http.allowed_response_headers),
        filter.forward_body.max_size,
    )


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({name.lower() for name in names}))


def problems(filter: HTTPExternalAuthFilter, field: str, limits: Limits) -> Iterator[Problem]:
    """Yields unsupported settings. A rule with any of them refuses all requests, because none may pass without
    authorization."""
    if filter.protocol not in PROTOCOLS:
        message = "server and protocol are missing; set protocol HTTP or GRPC and a backendRef"
        yield unsupported_value(message, field)
        return
    path = filter.http.path
    if _ODD_PATH.search(path) or not PATH.fullmatch(path) or len(path) > PATH_LENGTH:
        message = f"the server may interpret {shown(path)} as another path; write it without empty, dotted or escaped parts"
        yield unsupported_value(message, f"{field}.http.path")
    for config, names, never in (
        ("http.allowedHeaders", filter.http.allowed_headers, PROTECTED - _ALWAYS_SENT),
        ("http.allowedResponseHeaders", filter.http.allowed_response_headers, PROTECTED),
        ("grpc.allowedHeaders", filter.grpc.allowed_headers, frozenset[str]()),
    ):
        for name in names:
            if name.lower() in never or not HEADER_NAME.fullmatch(name):
                message = f"header {shown(name)} cannot be forwarded; remove it"
                yield unsupported_value(message, f"{field}.{config}")
    if filter.forward_body.max_size > limits.forward_body_bytes:
        message = f"maxSize {filter.forward_body.max_size:,}; {over(limits, 'forward_body_bytes')}"
        yield unsupported_value(message, f"{field}.forwardBody")
    if filter.forward_body.max_size < 0:
        message = f"maxSize {filter.forward_body.max_size} is negative; write 0 or more"
        yield unsupported_value(message, f"{field}.forwardBody")


EXTERNAL_AUTH: Final = "ExternalAuth"


class ListenerFilterPlan(msgspec.Struct, frozen=True):
    auth: tuple[ExternalAuth, ...] = ()
    """The servers to call, in this order."""
    refused: Problem | None = None
    """The problem of an unsupported filter."""
    unresolved: Problem | None = None
    """The problem of a server reference."""


def listener_filters(g: Graph, gateway: Key, owner: Key, listener: api.Listener) -> ListenerFilterPlan:
    """Returns the filters of a listener. `owner` is its Gateway or ListenerSet, whose references need grants."""
    servers: list[ExternalAuth] = []
    if len(listener.filters.requests) > MAX_AUTH:
        message = f"filters.requests: {len(listener.filters.requests)} filters, of which at most {MAX_AUTH} are supported"
        return ListenerFilterPlan(refused=unsupported_value(f"{message}, so the listener is closed", remedy="use fewer"))
    for number, filter in enumerate(listener.filters.requests):
        field = f"filters.requests[{number}]"
        auth_filter = filter.external_auth
        if filter.type != EXTERNAL_AUTH or auth_filter is None:
            message = f"{field}: a filter of type {filter.type} is not supported for listeners, so the listener is closed"
            return ListenerFilterPlan(refused=unsupported_value(message, remedy=f"use {EXTERNAL_AUTH}, or remove it"))
        if problem := next(problems(auth_filter, f"{field}.externalAuth", limits(g, gateway)), None):
            return ListenerFilterPlan(refused=unsupported_value(f"{problem}, so the listener is closed"))
        server = target(g, owner, auth_filter.backend_ref)
        if not isinstance(server, BackendTarget):
            return ListenerFilterPlan(unresolved=server.within(f"{field}.externalAuth.backendRef"))
        servers.append(external_auth(auth_filter, Hop(gateway, server.backend, server.port, PROTOCOLS[auth_filter.protocol])))
    return ListenerFilterPlan(tuple(servers))
