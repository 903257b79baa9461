"""Every backendRef of a rule, whatever refers to it: the one place that a new filter with a backendRef is added to."""

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
    """Inside the rule, or inside the filter."""
    ref: BackendObjectReference
    protocol: Protocol | None = None
    """Of the hop; None: the same as to the route's backends."""
    role: str = ""
    """What the backend is for, as the beginning of a line of `lasthop explain`."""
    asked: bool = False
    """Whether it decides on requests: without its answer there is none to the client."""


def references(rule: RequestRouteRule | StreamRouteRule) -> Iterator[RouteReference]:
    for index, ref in enumerate(rule.backend_refs):
        yield RouteReference(f"backendRefs[{index}]", ref)
    for index, filter in enumerate(() if isinstance(rule, StreamRouteRule) else rule.filters):
        for found in filter_references(filter):
            yield found._replace(field=f"filters[{index}].{found.field}")


def filter_references(filter: HTTPRouteFilter) -> Iterator[RouteReference]:
    if mirror := filter.request_mirror:
        part, whole = mirrored(mirror)
        role = "mirrors to " if part == whole else f"mirrors {part} in {whole} requests to "
        yield RouteReference("requestMirror", mirror.backend_ref, role=role)
    if (auth := filter.external_auth) and auth.protocol in AUTH_PROTOCOLS:
        role = f"asks first, by {auth.protocol}, and rejects what it does not allow: "
        yield RouteReference("externalAuth", auth.backend_ref, AUTH_PROTOCOLS[auth.protocol], role, asked=True)


def mirrored(mirror: HTTPRequestMirrorFilter) -> tuple[int, int]:
    """Returns how many of how many requests are mirrored."""
    if mirror.fraction:
        return mirror.fraction.numerator, mirror.fraction.denominator
    return 100 if mirror.percent is None else mirror.percent, 100
