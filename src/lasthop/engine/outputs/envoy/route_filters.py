"""Optional HTTP filters: disabled in every listener, and enabled by the routes that use them.

A disabled filter costs 0.07 % of a request. Enabling one is a route edit, so it drains no listener. The first route of a
request decides which filters are enabled. With an ExternalAuth server of a listener, the response may select another route, so
that listener enables all filters; they do nothing unless the route configures them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.stateful_session.cookie.v3 import cookie_pb2
from envoy.extensions.http.stateful_session.header.v3 import header_pb2
from envoy.type.http.v3 import cookie_pb2 as http_cookie_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue

from lasthop.engine.outputs.envoy import external_auth
from lasthop.engine.outputs.envoy.encode import packed, seconds
from lasthop.engine.plan.listener import MAX_AUTH
from lasthop.engine.plan.routing import Cors, ExternalAuth, Forward, Route, Session

CORS: Final = "envoy.filters.http.cors"
LISTENER_AUTH: Final = tuple(f"lasthop.listener_auth.{number}" for number in range(MAX_AUTH))
"""One filter per server: in a `composite` with several (`filter_chain`), Envoy calls only the first."""
EXTERNAL_AUTH: Final = "lasthop.external_auth"
SESSION: Final = "envoy.filters.http.stateful_session"


def _filters_of_routes() -> tuple[tuple[str, Message, Message], ...]:
    """Returns the filters that routes may use, in order: name, settings in the listener, and settings without effect. CORS
    precedes ExternalAuth, because preflight requests carry no credentials."""
    no_session = stateful_session_pb2.StatefulSession()
    return (
        (CORS, cors_pb2.Cors(), cors_pb2.CorsPolicy(forward_not_matching_preflights=BoolValue(value=True))),
        (EXTERNAL_AUTH, external_auth.placeholder(), external_auth.nothing()),
        (SESSION, no_session, stateful_session_pb2.StatefulSessionPerRoute(stateful_session=no_session)),
    )


def optional_filters() -> list[hcm_pb2.HttpFilter]:
    """Returns the filters in order. Those of listeners precede those of routes."""
    of_listeners = ((name, external_auth.placeholder()) for name in LISTENER_AUTH)
    messages = (*of_listeners, *((name, settings) for name, settings, _ in _filters_of_routes()))
    return [hcm_pb2.HttpFilter(name=name, typed_config=packed(message), disabled=True) for name, message in messages]


def per_route_filters(route: Route) -> dict[str, AnyMessage]:
    configs = {}
    if route.cors:
        configs[CORS] = _on(_cors(route.cors))
    if route.auth:
        limit = route.action.timeout if isinstance(route.action, Forward) else None
        configs[EXTERNAL_AUTH] = _on(external_auth.per_route(route.auth, limit))
    if isinstance(route.action, Forward) and route.action.session:
        configs[SESSION] = _on(_session(route.action.session))
    return configs


def per_host_filters(auths: Sequence[ExternalAuth]) -> dict[str, AnyMessage]:
    """Returns the filter settings of a virtual host whose listener has ExternalAuth servers."""
    if not auths:
        return {}
    return {
        **{name: _on(external_auth.per_host(auth)) for name, auth in zip(LISTENER_AUTH, auths, strict=False)},
        **{name: _on(nothing) for name, _, nothing in _filters_of_routes()},
    }


def _on(config: Message) -> AnyMessage:
    return packed(rc.FilterConfig(config=packed(config)))


def _cors(cors: Cors) -> cors_pb2.CorsPolicy:
    # With credentials, browsers treat the star as a header name, so the spec forbids it.
    expose = [name for name in cors.expose if name != "*" or not cors.credentials]
    return cors_pb2.CorsPolicy(
        allow_origin_string_match=[_origin(origin) for origin in cors.origins],
        allow_methods=", ".join(cors.methods),
        allow_headers=", ".join(cors.headers),
        expose_headers=", ".join(expose),
        max_age=str(cors.max_age),
        allow_credentials=BoolValue(value=cors.credentials),
        # Other origins get a response without allow-origin, which the browser rejects.
        forward_not_matching_preflights=BoolValue(value=False),
    )


def _origin(origin: str) -> string_pb2.StringMatcher:
    if "*" not in origin:
        return string_pb2.StringMatcher(exact=origin)
    # A wildcard matches characters of a host, so no port and no slash.
    pattern = ".*" if origin == "*" else "[^/:]*".join(re.escape(part) for part in origin.split("*"))
    return string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=pattern))


def _session(session: Session) -> stateful_session_pb2.StatefulSessionPerRoute:
    state: Message
    if session.header:
        name, state = "envoy.http.stateful_session.header", header_pb2.HeaderBasedSessionState(name=session.name)
    else:
        ttl = None if session.lifetime is None else seconds(session.lifetime)
        cookie = http_cookie_pb2.Cookie(name=session.name, path=session.path, ttl=ttl)
        name, state = "envoy.http.stateful_session.cookie", cookie_pb2.CookieBasedSessionState(cookie=cookie)
    message = stateful_session_pb2.StatefulSessionPerRoute()
    message.stateful_session.session_state.name = name
    message.stateful_session.session_state.typed_config.CopyFrom(packed(state))
    return message
