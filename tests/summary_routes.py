"""Renders Envoy's routes as lines: the match, an arrow, the target, and the filters in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2

RETRIES = 1
"""Default retries of unsent requests."""
CODES = {0: 301, 1: 302, 2: 303, 3: 307, 4: 308}
FILTERS = {
    "envoy.filters.http.cors": cors_pb2.CorsPolicy,
    "envoy.filters.http.stateful_session": stateful_session_pb2.StatefulSessionPerRoute,
    "lasthop.external_auth": extension_matcher_pb2.ExtensionWithMatcherPerRoute,
}


def host_lines(host: Any) -> list[str] | dict[str, list[str]]:
    """A list; or, where the host has an index, the list of each of its leaves."""
    if not host.HasField("matcher"):
        retries = host.retry_policy.num_retries.value
        forwards = any(route.HasField("route") for route in host.routes)
        notes = [f"({retries} retries unless the route says)"] if forwards and retries != RETRIES else []
        return [*notes, *_asked_first(host), *(route_line(route) for route in host.routes if _normal(route))]
    index = host.matcher
    if index.HasField("matcher_list"):
        assert [str(m.predicate.single_predicate.input.name) for m in index.matcher_list.matchers] == ["upgrade"]
        index = index.on_no_match.matcher
    tree = {key: _leaf(match.action) for key, match in sorted(index.matcher_tree.prefix_match_map.map.items())}
    if index.HasField("on_no_match"):
        tree["otherwise"] = _leaf(index.on_no_match.action)
    return tree


def _asked_first(host: Any) -> Iterator[str]:
    """Describes the listener's authorization servers; checks that all filters of routes are on."""
    configs = dict(host.typed_per_filter_config)
    asking = [name for name in sorted(configs) if name.startswith("lasthop.listener_auth")]
    assert not configs or {*configs} == {*asking, *FILTERS}
    for name in asking:
        config, per_host = rc.FilterConfig(), extension_matcher_pb2.ExtensionWithMatcherPerRoute()
        assert configs[name].Unpack(config) and config.config.Unpack(per_host)
        yield f"first {_asks(ext_authz(per_host), routes=True)}"


def _leaf(action: Any) -> list[str]:
    listed, alone = rc.RouteList(), rc.Route()
    if not action.typed_config.Unpack(listed):
        assert action.typed_config.Unpack(alone)
        listed.routes.append(alone)
    return [route_line(route) for route in listed.routes if _normal(route)]


def _normal(route: Any) -> bool:
    return not any(h.name == "upgrade" for h in route.match.headers)


def route_line(route: Any) -> str:
    on_the_way = [*_edits(route), *_action(route.route), *_filters(route)]
    return f"{_match(route.match)} -> {_where(route)}" + "".join(f", {word}" for word in on_the_way)


def _match(match: Any) -> str:
    path = match.prefix or f"{match.path_separated_prefix}/"
    path = f"= {match.path}" if match.path else f"~ {match.safe_regex.regex}" if match.safe_regex.regex else path
    path = f"gRPC {path}" if match.HasField("grpc") else path
    conditions = [f"{h.name} {_text(h.string_match)}" for h in match.headers]
    conditions += [f"?{q.name} {_text(q.string_match)}" for q in match.query_parameters]
    if match.HasField("runtime_fraction"):
        conditions.append(f"{match.runtime_fraction.default_value.numerator / 10_000:g} %")
    return f"{path} [{', '.join(conditions)}]" if conditions else path


def _text(matcher: Any) -> str:
    return f"~ {matcher.safe_regex.regex}" if matcher.HasField("safe_regex") else f"= {matcher.exact}"


def _where(route: Any) -> str:
    if route.HasField("direct_response"):
        return str(route.direct_response.status)
    if route.HasField("redirect"):
        to = route.redirect
        port = f":{to.port_redirect}" if to.port_redirect else ""
        path = to.path_redirect or (f" {_substitution(to.regex_rewrite)}" if to.HasField("regex_rewrite") else "")
        return f"{CODES[to.response_code]} {to.scheme_redirect or 'same'}://{to.host_redirect or 'same'}{port}{path}"
    if route.route.cluster:
        return str(route.route.cluster)
    return " | ".join(" ".join(_share(c)) for c in route.route.weighted_clusters.clusters)


def _share(cluster: Any) -> Iterator[str]:
    yield f"{cluster.weight.value} {cluster.name}"
    words = [*([f"host {cluster.host_rewrite_literal}"] if cluster.host_rewrite_literal else []), *_edits(cluster)]
    if words:
        yield f"({', '.join(words)})"


def _substitution(rewrite: Any) -> str:
    return f"{rewrite.pattern.regex} => {rewrite.substitution}"


def _edits(message: Any) -> Iterator[str]:
    for kind in ("request", "response"):
        for option in getattr(message, f"{kind}_headers_to_add"):
            verb = "set" if option.append_action == 2 else "add"
            yield f"{verb} {kind} {option.header.key}: {option.header.value}"
        for name in getattr(message, f"{kind}_headers_to_remove"):
            yield f"remove {kind} {name}"


def _action(action: Any) -> Iterator[str]:
    if action.host_rewrite_literal:
        yield f"host {action.host_rewrite_literal}"
    if action.HasField("regex_rewrite"):
        yield f"path {_substitution(action.regex_rewrite)}"
    for mirror in action.request_mirror_policies:
        yield f"{mirror.runtime_fraction.default_value.numerator / 10_000:g} % also to {mirror.cluster}"
    if action.timeout.ToNanoseconds():
        yield f"within {action.timeout.ToNanoseconds() / 1e9:g} s"
    if action.HasField("retry_policy"):
        retry = action.retry_policy
        codes = f" {list(retry.retriable_status_codes)}" if retry.retriable_status_codes else ""
        yield f"{retry.num_retries.value} retries on {retry.retry_on}{codes}" if retry.retry_on else "no retries"
        if retry.per_try_timeout.ToNanoseconds():
            yield f"each within {retry.per_try_timeout.ToNanoseconds() / 1e9:g} s"


def _filters(route: Any) -> Iterator[str]:
    for name, packed in sorted(route.typed_per_filter_config.items()):
        config, setting = rc.FilterConfig(), FILTERS[name]()
        assert packed.Unpack(config) and config.config.Unpack(setting)
        if isinstance(setting, cors_pb2.CorsPolicy):
            origins = [_text(origin) for origin in setting.allow_origin_string_match]
            yield f"CORS for {', '.join(origins)}"
        elif isinstance(setting, extension_matcher_pb2.ExtensionWithMatcherPerRoute):
            yield _asks(ext_authz(setting))
        else:
            yield f"session by {setting.stateful_session.session_state.name.rpartition('.')[2]}"


def ext_authz(per_route: Any) -> Any:
    """Returns the filter that a route applies to every request."""
    assert not per_route.xds_matcher.WhichOneof("matcher_type")
    action, filter = composite_pb2.ExecuteFilterAction(), ext_authz_pb2.ExtAuthz()
    assert per_route.xds_matcher.on_no_match.action.typed_config.Unpack(action)
    assert action.typed_config.typed_config.Unpack(filter)
    return filter


def _asks(authz: Any, *, routes: bool = False) -> str:
    assert not authz.failure_mode_allow and authz.clear_route_cache == routes and authz.status_on_error.code == 503
    http = authz.http_service
    cluster = http.server_uri.cluster or authz.grpc_service.envoy_grpc.cluster_name
    timeout = authz.grpc_service.timeout if authz.HasField("grpc_service") else http.server_uri.timeout
    request_headers = [_text(pattern) for pattern in authz.allowed_headers.patterns]
    added = [_text(pattern) for pattern in http.authorization_response.allowed_upstream_headers.patterns]
    words = [
        f"asks {cluster} by {'gRPC' if authz.HasField('grpc_service') else 'HTTP'} within {timeout.ToNanoseconds() / 1e9:g} s",
        *([f"under {http.path_prefix}"] if http.path_prefix else []),
        *([f"telling {' '.join(request_headers)}"] if request_headers else []),
        *([f"adding {' '.join(added)}"] if added else []),
        *([f"bodies up to {authz.with_request_body.max_request_bytes}"] if authz.HasField("with_request_body") else []),
    ]
    return " ".join(words)
