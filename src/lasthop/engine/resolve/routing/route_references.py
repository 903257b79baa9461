"""Lists every backendRef of a rule, including those of filters. A new filter with a backendRef is added here only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lasthop.base.api.routes import (
    BackendObjectReference,
    HTTPRequestMirrorFilter,
    HTTPRouteFilter,
    RequestRouteRule,
    StreamRouteRule,
)
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.routing.external_auth import PROTOCOLS as AUTH_PROTOCOLS


class RouteReference(NamedTuple):
    field: str
    """The path inside the rule or the filter."""
    ref: BackendObjectReference
    protocol: Protocol | None = None
    """The protocol of the hop; None: the protocol of the route's backends."""
    role: str = ""
    """The role of the backend, as the beginning of a line of `lasthop explain`."""
    authorizes: bool = False
    """Whether the backend authorizes requests, so that none passes without it."""


def references(rule: RequestRouteRule | StreamRouteRule) -> Iterator[RouteReference]:
    for index, ref in enumerate(rule.backend_refs):
        yield RouteReference(f"backendRefs[{index}]", ref)
    for index, filter in enumerate(() if isinstance(rule, StreamRouteRule) else rule.filters):
        for reference in filter_references(filter):
            yield reference._replace(field=f"filters[{index}].{reference.field}")


def filter_references(filter: HTTPRouteFilter) -> Iterator[RouteReference]:
    if mirror := filter.request_mirror:
        part, whole = mirrored(mirror)
        role = "mirrors to " if part == whole else f"mirrors {part} in {whole} requests to "
        yield RouteReference("requestMirror", mirror.backend_ref, role=role)
    if (auth := filter.external_auth) and auth.protocol in AUTH_PROTOCOLS:
        role = f"authorizes each request by {auth.protocol} at "
        yield RouteReference("externalAuth", auth.backend_ref, AUTH_PROTOCOLS[auth.protocol], role, authorizes=True)


def mirrored(mirror: HTTPRequestMirrorFilter) -> tuple[int, int]:
    """Returns the mirrored share of requests as (numerator, denominator)."""
    if mirror.fraction:
        return mirror.fraction.numerator, mirror.fraction.denominator
    return 100 if mirror.percent is None else mirror.percent, 100
