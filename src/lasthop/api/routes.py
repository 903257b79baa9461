"""The route kinds."""

from __future__ import annotations

from lasthop.api.gateway import GROUP
from lasthop.api.meta import Object, Struct


class ParentReference(Struct, frozen=True):
    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int = 0


class BackendObjectReference(Struct, frozen=True):
    name: str
    group: str = ""
    kind: str = "Service"
    namespace: str = ""
    port: int = 0


class HTTPRouteFilter(Struct, frozen=True):
    type: str


class HTTPBackendRef(BackendObjectReference, frozen=True):
    weight: int = 1
    filters: tuple[HTTPRouteFilter, ...] = ()


class HTTPPathMatch(Struct, frozen=True):
    type: str = "PathPrefix"
    value: str = "/"


class HTTPValueMatch(Struct, frozen=True):
    """A header or query parameter match: the two are written alike."""

    name: str
    value: str
    type: str = "Exact"


class HTTPRouteMatch(Struct, frozen=True):
    path: HTTPPathMatch = HTTPPathMatch()
    headers: tuple[HTTPValueMatch, ...] = ()
    query_params: tuple[HTTPValueMatch, ...] = ()
    method: str = ""


class HTTPRouteRule(Struct, frozen=True):
    name: str = ""
    matches: tuple[HTTPRouteMatch, ...] = (HTTPRouteMatch(),)
    filters: tuple[HTTPRouteFilter, ...] = ()
    backend_refs: tuple[HTTPBackendRef, ...] = ()


class HTTPRouteSpec(Struct, frozen=True):
    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = ()


class HTTPRoute(Object, frozen=True):
    spec: HTTPRouteSpec = HTTPRouteSpec()


class UnservedSpec(Struct, frozen=True):
    parent_refs: tuple[ParentReference, ...] = ()


class Unserved(Object, frozen=True):
    """A kind that is admitted but does nothing in this version; `check` and the log say so."""

    spec: UnservedSpec = UnservedSpec()
