"""One route as Envoy's Route messages: match, action and filters."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.engine.outputs.envoy.encode import encode, seconds
from lasthop.engine.outputs.envoy.retries import route_retry
from lasthop.engine.outputs.envoy.route_filters import per_route_filters
from lasthop.engine.plan import routing
from lasthop.engine.plan.upstream import Protocol

INTERNAL_ERROR: Final = 500
REFUSED: Final = "refused"
"""A cluster name that never exists, for references that are not permitted."""
IDLE: Final = 300.0
"""Idle timeout of a request in seconds."""
GRPC_IDLE: Final = 3600.0
"""Idle timeout of gRPC calls. Streams may be idle for long, and a GRPCRoute has no field for it."""
UPGRADE: Final = "upgrade"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Listening(NamedTuple):
    """Default scheme and port of a redirect: those of the listener."""

    scheme: str
    port: int


NO_ROUTE: Final = "No route of this gateway matches the request."
"""The body of the gateway's own 404."""


def refusal(status: int = INTERNAL_ERROR) -> rc.Route:
    return rc.Route(match=rc.RouteMatch(prefix="/"), direct_response=rc.DirectResponseAction(status=status))


def refusing(match: routing.Match, origin: str) -> rc.Route:
    """Returns a route with the same match that returns 500, which local replies turn into UNAVAILABLE for gRPC clients."""
    direct = rc.DirectResponseAction(status=INTERNAL_ERROR)
    return rc.Route(name=origin, match=route_match(match), direct_response=direct)


class Messages(NamedTuple):
    """Envoy's messages for a route, for upgrade requests and for all others. They are the same list unless a backend has a
    separate hop for upgrades."""

    upgrade: list[rc.Route]
    other: list[rc.Route]


def envoy_routes(route: routing.Route, listening: Listening) -> Messages:
    match route.action:
        case routing.Refuse() | routing.Forward(backends=()):
            message = _route(route)
            message.direct_response.status = INTERNAL_ERROR
            refused = [message]
            return Messages(refused, refused)
        case routing.Redirect() as redirect:
            redirects = _redirects(route, redirect, listening)
            return Messages(redirects, redirects)
        case routing.Forward() as forward if route.match.grpc:
            calls = _forwards(_route(route), forward, Protocol.H2)
            return Messages(calls, calls)
        case routing.Forward() as forward:
            other = _forwards(_route(route), forward, Protocol.AUTO)
            if not any(backend.separate_upgrades for backend in forward.backends):
                return Messages(other, other)
            return Messages(_forwards(_route(route), forward, Protocol.H1_UPGRADE), other)


def _route(route: routing.Route) -> rc.Route:
    message = rc.Route(name=route.origin, match=route_match(route.match))
    if route.headers != routing.NO_EDITS:
        _edit_headers(message, route.headers)
    for name, config in per_route_filters(route).items():
        message.typed_per_filter_config[name].CopyFrom(config)
    return message


# --- matching --------------------------------------------------------------------------------------------------------


def route_match(match: routing.Match) -> rc.RouteMatch:
    message = rc.RouteMatch()
    match match.path_type:
        case routing.PathType.EXACT:
            message.path = match.path
        case routing.PathType.REGEX:
            message.safe_regex.regex = match.path
        case routing.PathType.PREFIX if match.path == "/":
            message.prefix = "/"
        case routing.PathType.PREFIX:
            message.path_separated_prefix = match.path
    if match.grpc:
        message.grpc.SetInParent()
    for header in match.headers:
        message.headers.append(rc.HeaderMatcher(name=header.name, string_match=_string(header.value, header.regex)))
    if match.method:
        message.headers.append(rc.HeaderMatcher(name=":method", string_match=_string(match.method)))
    for parameter in match.query:
        matcher = _string(parameter.value, parameter.regex)
        message.query_parameters.append(rc.QueryParameterMatcher(name=parameter.name, string_match=matcher))
    return message


def _string(value: str, regex: bool = False) -> string_pb2.StringMatcher:
    if regex:
        return string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=value))
    return string_pb2.StringMatcher(exact=value)


# --- headers ---------------------------------------------------------------------------------------------------------


def _edit_headers(message: rc.Route | rc.WeightedCluster.ClusterWeight, headers: routing.HeaderEdits) -> None:
    message.request_headers_to_add.extend(_additions(headers.request))
    message.request_headers_to_remove.extend(headers.request.remove)
    message.response_headers_to_add.extend(_additions(headers.response))
    message.response_headers_to_remove.extend(headers.response.remove)


def _additions(edit: routing.HeaderEdit) -> Iterable[base_pb2.HeaderValueOption]:
    actions = base_pb2.HeaderValueOption
    for pairs, action in ((edit.set, actions.OVERWRITE_IF_EXISTS_OR_ADD), (edit.add, actions.APPEND_IF_EXISTS_OR_ADD)):
        for name, value in pairs:
            # A percent sign would start one of Envoy's format commands.
            header = base_pb2.HeaderValue(key=name, value=value.replace("%", "%%"))
            yield base_pb2.HeaderValueOption(header=header, append_action=action, keep_empty_value=True)


# --- redirects -------------------------------------------------------------------------------------------------------


_REDIRECT_CODES: Final = {
    301: rc.RedirectAction.MOVED_PERMANENTLY,
    302: rc.RedirectAction.FOUND,
    303: rc.RedirectAction.SEE_OTHER,
    307: rc.RedirectAction.TEMPORARY_REDIRECT,
    308: rc.RedirectAction.PERMANENT_REDIRECT,
}


def _redirects(route: routing.Route, redirect: routing.Redirect, listening: Listening) -> list[rc.Route]:
    """Returns one message, or two if the Host header may contain a port: Envoy would keep it, but the spec requires that of
    the scheme or the listener. The second message sets the port explicitly for such clients."""
    # Without a port, that of the scheme if set, else the listener's. The default port of a scheme is omitted.
    scheme = redirect.scheme or listening.scheme
    port = redirect.port or (DEFAULT_PORTS[scheme] if redirect.scheme else listening.port)
    message = _route(route)
    message.redirect.CopyFrom(_redirect(redirect))
    if port == DEFAULT_PORTS[scheme] and redirect.hostname:
        return [message]
    with_port = rc.Route()
    with_port.CopyFrom(message)
    with_port.redirect.port_redirect = port
    if port != DEFAULT_PORTS[scheme]:
        return [with_port]
    with_port.match.headers.append(rc.HeaderMatcher(name=":authority", string_match=_string(r".*:[0-9]+", regex=True)))
    return [with_port, message]


def _redirect(redirect: routing.Redirect) -> rc.RedirectAction:
    message = rc.RedirectAction(response_code=_REDIRECT_CODES[redirect.status])
    if redirect.scheme:
        message.scheme_redirect = redirect.scheme
    if redirect.hostname:
        message.host_redirect = redirect.hostname
    if redirect.path is not None:
        if redirect.path.prefix is None:
            message.path_redirect = redirect.path.value
        else:
            message.regex_rewrite.CopyFrom(_replace_prefix(redirect.path))
    return message


def _replace_prefix(edit: routing.PathEdit) -> regex_pb2.RegexMatchAndSubstitute:
    """Replaces a prefix such as `/foo` by the spec's table: exactly one slash separates prefix and rest."""
    prefix = (edit.prefix or "").rstrip("/")
    value = edit.value.rstrip("/")
    if not value:
        return _regex(f"^{re.escape(prefix)}/*", "/")
    if not prefix:
        return _regex("^/", f"{_literal(value)}/")
    return _regex(f"^{re.escape(prefix)}", _literal(value))


def _regex(pattern: str, substitution: str) -> regex_pb2.RegexMatchAndSubstitute:
    return regex_pb2.RegexMatchAndSubstitute(pattern=regex_pb2.RegexMatcher(regex=pattern), substitution=substitution)


def _literal(text: str) -> str:
    """Escapes backslashes for a substitution."""
    return text.replace("\\", "\\\\")


# --- forwarding ------------------------------------------------------------------------------------------------------


def _forwards(message: rc.Route, forward: routing.Forward, protocol: Protocol) -> list[rc.Route]:
    """Returns one message, or one per backend if backends rewrite the path, which a weighted cluster cannot. Envoy draws one
    random number for all of them, so each threshold includes the shares before it."""
    if not any(backend.rewrite and backend.rewrite.path for backend in forward.backends):
        _act(message.route, forward, forward.backends, forward.rewrite, protocol)
        return [message]
    messages = []
    total, so_far = sum(backend.weight for backend in forward.backends), 0
    for backend in forward.backends:
        part = rc.Route()
        part.CopyFrom(message)
        so_far += backend.weight
        if so_far < total:
            part.match.runtime_fraction.default_value.CopyFrom(_fraction(so_far, total))
        _act(part.route, forward, (backend,), _combined(forward.rewrite, backend.rewrite), protocol)
        messages.append(part)
    return messages


def _combined(of_rule: routing.Rewrite | None, of_backend: routing.Rewrite | None) -> routing.Rewrite | None:
    if of_rule is None or of_backend is None:
        return of_rule or of_backend
    return routing.Rewrite(of_backend.hostname or of_rule.hostname, of_backend.path or of_rule.path)


def _fraction(part: int, whole: int) -> percent_pb2.FractionalPercent:
    share = round(1_000_000 * part / whole)
    return percent_pb2.FractionalPercent(numerator=share, denominator=percent_pb2.FractionalPercent.MILLION)


def _act(
    action: rc.RouteAction,
    forward: routing.Forward,
    backends: tuple[routing.WeightedBackend, ...],
    rewrite: routing.Rewrite | None,
    protocol: Protocol,
) -> None:
    # Always set: the listener's default is short (see HEADERS_TIMEOUT).
    idle = GRPC_IDLE if protocol is Protocol.H2 else IDLE
    if forward.timeout is not None and not 0 < forward.timeout <= IDLE:
        idle = forward.timeout
    action.MergeFromString(_common(_timeout(forward), idle))
    for mirror in forward.mirrors:
        action.request_mirror_policies.append(_mirror(mirror))
    if forward.retry:
        action.retry_policy.CopyFrom(route_retry(forward.retry, forward.try_timeout))
    if rewrite:
        _rewrite(action, rewrite)
    only = backends[0]
    if len(backends) == 1 and only.headers == routing.NO_EDITS and not (only.rewrite and only.rewrite.hostname):
        action.cluster = _cluster_name(only, protocol)
        return
    for backend in backends:
        weight = UInt32Value(value=backend.weight)
        share = rc.WeightedCluster.ClusterWeight(name=_cluster_name(backend, protocol), weight=weight)
        _edit_headers(share, backend.headers)
        if backend.rewrite and backend.rewrite.hostname:
            share.host_rewrite_literal = backend.rewrite.hostname
        action.weighted_clusters.clusters.append(share)


@functools.lru_cache(maxsize=256)
def _common(timeout: float, idle: float) -> bytes:
    """Encodes the common part of routes, a RouteAction."""
    action = rc.RouteAction(
        cluster_not_found_response_code=rc.RouteAction.INTERNAL_SERVER_ERROR,
        timeout=seconds(timeout),
        idle_timeout=seconds(idle),
    )
    return encode(action)


def _cluster_name(backend: routing.WeightedBackend, protocol: Protocol) -> str:
    if backend.hop is None:
        return REFUSED
    shared = protocol is Protocol.H1_UPGRADE and not backend.separate_upgrades
    same = shared or protocol is backend.hop.protocol
    return backend.hop.name if same else backend.hop._replace(protocol=protocol).name


def _timeout(forward: routing.Forward) -> float:
    """Returns the timeout of the whole request; zero means none. Without retries, one try is the whole request."""
    if not forward.timeout and not forward.try_timeout:
        return 0.0
    retries = forward.retry and forward.retry.attempts
    limits = [forward.timeout] if retries else [forward.timeout, forward.try_timeout]
    return min((limit for limit in limits if limit), default=0.0)


def _rewrite(action: rc.RouteAction, rewrite: routing.Rewrite) -> None:
    if rewrite.hostname:
        action.host_rewrite_literal = rewrite.hostname
    if rewrite.path is not None:
        if rewrite.path.prefix is None:
            action.regex_rewrite.CopyFrom(_regex("^/.*$", _literal(rewrite.path.value)))
        else:
            action.regex_rewrite.CopyFrom(_replace_prefix(rewrite.path))


def _mirror(mirror: routing.Mirror) -> rc.RouteAction.RequestMirrorPolicy:
    """Mirrors to a hop. If its cluster does not exist, the copy is dropped and the request continues."""
    policy = rc.RouteAction.RequestMirrorPolicy(cluster=mirror.hop.name, disable_shadow_host_suffix_append=True)
    policy.runtime_fraction.default_value.CopyFrom(_fraction(mirror.numerator, mirror.denominator))
    return policy
