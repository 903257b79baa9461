"""The route kinds."""

from __future__ import annotations

from lasthop.api.gateway import GROUP
from lasthop.api.meta import Object, Struct


class ParentReference(Struct):
    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int = 0


class BackendObjectReference(Struct):
    name: str
    group: str = ""
    kind: str = "Service"
    namespace: str = ""
    port: int = 0


class HTTPRouteFilter(Struct):
    type: str


class HTTPBackendRef(BackendObjectReference):
    weight: int = 1
    filters: tuple[HTTPRouteFilter, ...] = ()


class HTTPPathMatch(Struct):
    type: str = "PathPrefix"
    value: str = "/"


class HTTPHeaderMatch(Struct):
    name: str
    value: str
    type: str = "Exact"


class HTTPQueryParamMatch(Struct):
    name: str
    value: str
    type: str = "Exact"


class HTTPRouteMatch(Struct):
    path: HTTPPathMatch = HTTPPathMatch()
    headers: tuple[HTTPHeaderMatch, ...] = ()
    query_params: tuple[HTTPQueryParamMatch, ...] = ()
    method: str = ""


class HTTPRouteRule(Struct):
    name: str = ""
    matches: tuple[HTTPRouteMatch, ...] = (HTTPRouteMatch(),)
    filters: tuple[HTTPRouteFilter, ...] = ()
    backend_refs: tuple[HTTPBackendRef, ...] = ()


class HTTPRouteSpec(Struct):
    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = ()


class HTTPRoute(Object):
    spec: HTTPRouteSpec = HTTPRouteSpec()


class UnservedSpec(Struct):
    parent_refs: tuple[ParentReference, ...] = ()


class Unserved(Object):
    """A kind that is admitted but does nothing in this version; `check` and the log say so."""

    spec: UnservedSpec = UnservedSpec()
