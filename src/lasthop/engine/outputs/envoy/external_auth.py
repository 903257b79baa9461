"""ExternalAuth as Envoy's ext_authz filter, configured in routes or in the virtual hosts of a listener.

A route can override the server of a listener's filter in Envoy, but not the forwarded headers. So the listener contains an
empty `composite` filter, which the route fills: no edit of an ExternalAuth filter touches a listener. Filters of listeners use
other `composite` filters, which virtual hosts fill, so that edits also apply to open connections."""

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
"""Envoy's default is 0.2 s, too short for a server that queries a database."""
UNANSWERED: Final = http_status_pb2.ServiceUnavailable
"""The status if the server does not answer: the client is not at fault, so not Envoy's 403."""
_FRAMING: Final = (
    *("connection", "content-length", "host", "keep-alive", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
)
"""Headers of one message or connection, or for routing. The server may not set them."""
_OWN_BODY: Final = "content-.*"
"""Headers that describe the body of the server's response, not that of the request."""


def placeholder() -> extension_matcher_pb2.ExtensionWithMatcher:
    return extension_matcher_pb2.ExtensionWithMatcher(
        extension_config=extension_pb2.TypedExtensionConfig(name="composite", typed_config=packed(composite_pb2.Composite())),
        xds_matcher=matcher_pb2.Matcher(),
    )


def per_route(auth: ExternalAuth, limit: float | None) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Returns the settings of one route. `limit` is the timeout of the whole request in seconds, if any."""
    action = composite_pb2.ExecuteFilterAction(typed_config=_named(_ext_authz(auth, min(limit or TIMEOUT, TIMEOUT))))
    return _always(action)


def per_host(auth: ExternalAuth) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Returns the filter of a virtual host. Headers that the server adds can change the route, so the route is chosen
    again."""
    return _always(composite_pb2.ExecuteFilterAction(typed_config=_named(_ext_authz(auth, TIMEOUT, routes=True))))


def nothing() -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    """Enables the filter of routes without a server."""
    return extension_matcher_pb2.ExtensionWithMatcherPerRoute(xds_matcher=matcher_pb2.Matcher())


def _named(message: ext_authz_pb2.ExtAuthz) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name="envoy.filters.http.ext_authz", typed_config=packed(message))


def _always(action: composite_pb2.ExecuteFilterAction) -> extension_matcher_pb2.ExtensionWithMatcherPerRoute:
    # A matcher without conditions authorizes every request.
    message = extension_matcher_pb2.ExtensionWithMatcherPerRoute()
    message.xds_matcher.on_no_match.action.name = "ask"
    message.xds_matcher.on_no_match.action.typed_config.CopyFrom(packed(action))
    return message


def _ext_authz(auth: ExternalAuth, timeout: float, *, routes: bool = False) -> ext_authz_pb2.ExtAuthz:
    """Returns the ext_authz filter. With `routes`, the route is chosen after it."""
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
        # Never a partial body: the server must not see less than the backend.
        message.with_request_body.max_request_bytes = auth.max_body
    return message


def _grpc(hop: Hop, timeout: float) -> grpc_service_pb2.GrpcService:
    # Envoy would use the cluster's name as the authority, and some servers reject slashes in it.
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
