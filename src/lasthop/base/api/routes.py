"""The route kinds."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import GATEWAY_GROUP, Object, Struct


class ParentReference(Struct, frozen=True):
    name: str
    group: str = GATEWAY_GROUP
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


class HTTPHeader(Struct, frozen=True):
    name: str
    value: str


class HTTPHeaderFilter(Struct, frozen=True):
    set: tuple[HTTPHeader, ...] = ()
    add: tuple[HTTPHeader, ...] = ()
    remove: tuple[str, ...] = ()


class Fraction(Struct, frozen=True):
    numerator: int
    denominator: int = 100


class HTTPRequestMirrorFilter(Struct, frozen=True):
    backend_ref: BackendObjectReference
    percent: int | None = None
    fraction: Fraction | None = None


class HTTPPathModifier(Struct, frozen=True):
    type: str
    replace_full_path: str = ""
    replace_prefix_match: str = ""


class HTTPRequestRedirectFilter(Struct, frozen=True):
    scheme: str = ""
    hostname: str = ""
    path: HTTPPathModifier | None = None
    port: int = 0
    status_code: int = 302


class HTTPURLRewriteFilter(Struct, frozen=True):
    hostname: str = ""
    path: HTTPPathModifier | None = None


class HTTPCORSFilter(Struct, frozen=True):
    allow_origins: tuple[str, ...] = ()
    allow_credentials: bool = False
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: int = 5


class GRPCAuthConfig(Struct, frozen=True):
    allowed_headers: tuple[str, ...] = ()


class HTTPAuthConfig(Struct, frozen=True):
    path: str = ""
    allowed_headers: tuple[str, ...] = ()
    allowed_response_headers: tuple[str, ...] = ()


class ForwardBodyConfig(Struct, frozen=True):
    max_size: int = 0


class HTTPExternalAuthFilter(Struct, frozen=True):
    protocol: str
    backend_ref: BackendObjectReference
    grpc: GRPCAuthConfig = GRPCAuthConfig()
    http: HTTPAuthConfig = HTTPAuthConfig()
    forward_body: ForwardBodyConfig = ForwardBodyConfig()


class ExtensionReference(Struct, frozen=True):
    group: str
    kind: str
    name: str


class HTTPRouteFilter(Struct, frozen=True):
    type: str
    request_header_modifier: HTTPHeaderFilter | None = None
    response_header_modifier: HTTPHeaderFilter | None = None
    request_mirror: HTTPRequestMirrorFilter | None = None
    request_redirect: HTTPRequestRedirectFilter | None = None
    url_rewrite: HTTPURLRewriteFilter | None = None
    cors: HTTPCORSFilter | None = None
    external_auth: HTTPExternalAuthFilter | None = None
    extension_ref: ExtensionReference | None = None


class HTTPBackendRef(BackendObjectReference, frozen=True):
    weight: int = 1
    filters: tuple[HTTPRouteFilter, ...] = ()


class HTTPPathMatch(Struct, frozen=True):
    type: str = "PathPrefix"
    value: str = "/"


class HTTPValueMatch(Struct, frozen=True):
    """A match of a header or a query parameter."""

    name: str
    value: str
    type: str = "Exact"


class HTTPRouteMatch(Struct, frozen=True):
    path: HTTPPathMatch = HTTPPathMatch()
    headers: tuple[HTTPValueMatch, ...] = ()
    query_params: tuple[HTTPValueMatch, ...] = ()
    method: str = ""


class HTTPRouteTimeouts(Struct, frozen=True):
    request: str = ""
    backend_request: str = ""


class HTTPRouteRetry(Struct, frozen=True):
    codes: tuple[int, ...] = ()
    attempts: int = 1
    backoff: str = ""


class CookieConfig(Struct, frozen=True):
    name: str = ""
    path: str = "/"
    lifetime_type: str = "Session"


class HeaderConfig(Struct, frozen=True):
    name: str = ""


class SessionPersistence(Struct, frozen=True):
    type: str = "Cookie"
    cookie: CookieConfig = CookieConfig()
    header: HeaderConfig = HeaderConfig()
    absolute_timeout: str = ""
    session_name: str = ""
    """Session persistence, including cookieConfig of bundles up to v1.6 and idleTimeout of bundles up to v1.5."""
    cookie_config: CookieConfig | None = None
    idle_timeout: str = ""

    def __post_init__(self) -> None:
        if self.session_name or self.cookie_config:
            lifetime = (self.cookie_config or self.cookie).lifetime_type
            msgspec.structs.force_setattr(self, "cookie", CookieConfig(self.session_name, lifetime_type=lifetime))
            msgspec.structs.force_setattr(self, "header", HeaderConfig(self.session_name))


class CommonRouteRule(Struct, frozen=True):
    """The common part of HTTPRoute and GRPCRoute rules: everything but the matches."""

    name: str = ""
    filters: tuple[HTTPRouteFilter, ...] = ()
    """Filters. A GRPCRoute supports some of them, with the same fields."""
    backend_refs: tuple[HTTPBackendRef, ...] = ()
    session_persistence: SessionPersistence | None = None


class HTTPRouteRule(CommonRouteRule, frozen=True):
    matches: tuple[HTTPRouteMatch, ...] = (HTTPRouteMatch(),)
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    retry: HTTPRouteRetry | None = None


class HTTPRouteSpec(Struct, frozen=True):
    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = ()
    use_default_gateways: str = ""


class HTTPRoute(Object, frozen=True):
    spec: HTTPRouteSpec = HTTPRouteSpec()


class GRPCMethodMatch(Struct, frozen=True):
    """An empty service or method matches any."""

    type: str = "Exact"
    service: str = ""
    method: str = ""


class GRPCRouteMatch(Struct, frozen=True):
    method: GRPCMethodMatch = GRPCMethodMatch()
    headers: tuple[HTTPValueMatch, ...] = ()


class GRPCRouteRule(CommonRouteRule, frozen=True):
    matches: tuple[GRPCRouteMatch, ...] = (GRPCRouteMatch(),)


class GRPCRouteSpec(Struct, frozen=True):
    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()
    use_default_gateways: str = ""


class GRPCRoute(Object, frozen=True):
    spec: GRPCRouteSpec = GRPCRouteSpec()


RequestRoute = HTTPRoute | GRPCRoute
"""Routes of single requests, which share one table for each hostname."""
RequestRouteRule = HTTPRouteRule | GRPCRouteRule


class BackendRef(BackendObjectReference, frozen=True):
    weight: int = 1


class StreamRouteRule(Struct, frozen=True):
    name: str = ""
    backend_refs: tuple[BackendRef, ...] = ()


class StreamRouteSpec(Struct, frozen=True):
    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    """The server names (SNI) of a TLSRoute; other stream routes have none."""
    rules: tuple[StreamRouteRule, ...] = ()
    """One rule; v1alpha2 also permits further rules that never match."""
    use_default_gateways: str = ""


class StreamRoute(Object, frozen=True):
    """A route of whole connections, or of datagrams."""

    spec: StreamRouteSpec = StreamRouteSpec()


class TLSRoute(StreamRoute, frozen=True):
    pass


class TCPRoute(StreamRoute, frozen=True):
    pass


class UDPRoute(StreamRoute, frozen=True):
    pass


Route = RequestRoute | StreamRoute
