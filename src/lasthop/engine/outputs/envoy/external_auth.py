"""ExternalAuth as Envoy's ext_authz filter, whole in the route that wants it, or in the virtual hosts of a listener that does.

Envoy lets a route choose another server for the listener's filter, but not which headers that is told. So the listener has an
empty `composite` instead, and the route fills it: neither a new ExternalAuth filter nor an edited one touches a listener.
What a listener itself asks for is in others of these, which its virtual hosts fill: an edit holds for open connections too.
"""

from __future__ import annotations

from typing import Final

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import config_source_pb2, extension_pb2, grpc_service_pb2, http_uri_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from envoy.type.v3 import http_status_pb2
from xds.type.matcher.v3 import matcher_pb2

from lasthop.engine.outputs.envoy.encode import packed, seconds
from lasthop.engine.plan.routing import ExternalAuth
from lasthop.engine.plan.upstream import Hop, Protocol

TIMEOUT: Final = 10.0
"""Envoy's own is 0.2 s, too little for a server that asks a database or another server."""
UNANSWERED: Final = http_status_pb2.ServiceUnavailable
"""What a request gets where the server does not answer: not the client's fault, so not Envoy's 403."""
_FRAMING: Final = (
    *("connection", "content-length", "host", "keep-alive", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
)
"""Headers that belong to one message or one connection, or decide where a request goes: no server may set them."""
_OWN_BODY: Final = "content-.*"
"""Headers that describe the body of the server's answer, which is not that of the request."""


def placeholder() -> extension_matcher_pb2.ExtensionWithMatcher:
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config=extension_pb2.TypedExtensionConfig(name="composite", typed_config=packed(composite_pb2.Composite())),
        xds_matcher=matcher_pb2.Matcher(),
    )


def per_route(auth: ExternalAuth, limit: float | None) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Returns the settings of one route. `limit`: the seconds that the whole request may take, if any."""
    action = composite_pb2.ExecuteFilterAction(typed_config=_named(_ext_authz(auth, min(limit or TIMEOUT, TIMEOUT))))
    return _always(action)


def per_host(auth: ExternalAuth) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Returns the filter of a virtual host. What the server adds to a request counts when its route is chosen, so that is done
    anew."""
    return _always(composite_pb2.ExecuteFilterAction(typed_config=_named(_ext_authz(auth, TIMEOUT, routes=True))))


def nothing() -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Switches the filter of routes on without a server to ask."""
    return extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=matcher_pb2.Matcher())


def _named(message: ext_authz_pb2.ExtAuthz) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name="envoy.filters.http.ext_authz", typed_config=packed(message))


def _always(action: composite_pb2.ExecuteFilterAction) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    # A matcher without conditions: whatever the request is like, it is asked about.
    message = extension_matcher_pb2.ExtensionWithMatcherPerRoute()
    message.xds_matcher.on_no_match.action.name = "ask"
    message.xds_matcher.on_no_match.action.typed_config.CopyFrom(packed(action))
    return message


def _ext_authz(auth: ExternalAuth, timeout: float, *, routes: bool = False) -> ext_authz_pb2.ExtAuthz:
    """Returns the filter that asks a server. `routes`: the route is chosen after it."""
    grpc = auth.hop.protocol is Protocol.H2
    all_headers = not grpc and not auth.response_headers
    untouched = "|".join((*_FRAMING, *([_OWN_BODY] if all_headers else [])))
    message = ext_authz_pb2.ExtAuthz(
        transport_api_version=config_source_pb2.V3,
        failure_mode_allow=False,
        clear_route_cache=routes,
        status_on_error=http_status_pb2.HttpStatus(code=UNANSWERED),
        decoder_header_mutation_rules=mutation_rules_pb2.HeaderMutationRules(
            disallow_expression=regex_pb2.RegexMatcher(regex=untouched)
        ),
    )
    if grpc:
        message.grpc_service.CopyFrom(_grpc(auth.hop, timeout))
    else:
        message.http_service.CopyFrom(_http(auth, timeout))
    if auth.request_headers:
        message.allowed_headers.CopyFrom(_any_of(auth.request_headers))
    if auth.max_body:
        # Not a part of it: a server that judges by the body must not be shown less than the backend.
        message.with_request_body.max_request_bytes = auth.max_body
    return message


def _grpc(hop: Hop, timeout: float) -> grpc_service_pb2.GrpcService:
    # Envoy would take the cluster's name for the authority, and slashes in it are more than some servers bear.
    to = grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=hop.name, authority=_authority(hop))
    return grpc_service_pb2.GrpcService(envoy_grpc=to, timeout=seconds(timeout))


def _http(auth: ExternalAuth, timeout: float) -> ext_authz_pb2.HttpService:
    uri = http_uri_pb2.HttpUri(uri=f"http://{_authority(auth.hop)}", cluster=auth.hop.name, timeout=seconds(timeout))
    message = ext_authz_pb2.HttpService(server_uri=uri, path_prefix=auth.path)
    message.authorization_response.allowed_upstream_headers.CopyFrom(
        _any_of(auth.response_headers)
        if auth.response_headers
        else string_pb2.ListStringMatcher(
            patterns=[string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex="[^:].*"))]
        )
    )
    return message


def _authority(hop: Hop) -> str:
    return f"{hop.backend.name}.{hop.backend.namespace}.svc:{hop.port}"


def _any_of(names: tuple[str, ...]) -> string_pb2.ListStringMatcher:
    return string_pb2.ListStringMatcher(patterns=[string_pb2.StringMatcher(exact=name) for name in names])
