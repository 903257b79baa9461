"""Supported settings of routes, independent of the cluster's CRDs: these tests decode objects without validation."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.route.v3 import route_pb2

from lasthop.base.api.meta import Key
from lasthop.base.api.status import RouteStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES
from lasthop.engine.plan.limits import REGEX_CEILING, Limits, ceiling
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.routing.regexes import program_size
from tests.snapshot import Snapshot, settle
from tests.world import (
    keyed,
    mk_class,
    mk_external_auth,
    mk_gateway,
    mk_listener_set,
    mk_profile,
    mk_route,
    mk_service,
    mk_stream_route,
    profile_ref,
)

GATEWAY = Key("Gateway", "edge", "web")
ODD = Key("HTTPRoute", "team", "odd")
API = [{"name": "api", "port": 443}]
HOST = "shared.example"
LISTENERS = [
    {"name": "all", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
    {"name": "tcp", "port": 81, "protocol": "TCP", "allowedRoutes": {"namespaces": {"from": "All"}}},
    {"name": "udp", "port": 81, "protocol": "UDP", "allowedRoutes": {"namespaces": {"from": "All"}}},
]


def serve(*more: Any, **spec: Any) -> tuple[Engine, Snapshot]:
    """A Gateway, a route of namespace shop on the shared hostname, and what another namespace adds."""
    engine, snapshot = Engine(), Snapshot()
    neighbour = mk_route("shop/own", "edge/web", API, [HOST], created="2020-01-01T00:00:00Z")
    engine.apply(keyed(mk_class(), mk_gateway("edge/web", LISTENERS, **spec), neighbour, *more))
    engine.apply(keyed(mk_service("shop/api"), mk_service("team/api")))
    settle(engine, snapshot)
    assert engine.graph.crashes == {}
    return engine, snapshot


def conditions(snapshot: Snapshot, route: Key = ODD) -> dict[str, tuple[str, str, str]]:
    status = snapshot.status[route]
    assert isinstance(status, RouteStatus)
    (parent,) = status.parents
    return {c.type: (c.status, c.reason, c.message) for c in parent.conditions}


def served(snapshot: Snapshot) -> dict[str, list[tuple[str, str]]]:
    """Hostname -> (origin, action), in order."""
    table = route_pb2.RouteConfiguration.FromString(snapshot.xds[GATEWAY, ROUTES, "edge/web/80"].body)
    return {
        host.name: [(route.name, str(route.WhichOneof("action"))) for route in host.routes] for host in table.virtual_hosts
    }


def header(value: str, name: str = "x-a") -> dict[str, Any]:
    return {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": name, "value": value}]}}]}


def filtered(type: str, field: str, **settings: Any) -> dict[str, Any]:
    return {"filters": [{"type": type, field: settings}]}


def redirect(**settings: Any) -> dict[str, Any]:
    return filtered("RequestRedirect", "requestRedirect", **settings)


def cors(**settings: Any) -> dict[str, Any]:
    return filtered("CORS", "cors", **settings)


def auth(**config: Any) -> dict[str, Any]:
    return {"filters": [mk_external_auth("HTTP", API[0], **config)]}


def cookie(**settings: Any) -> dict[str, Any]:
    return {"sessionPersistence": {"type": "Cookie", "cookie": settings}}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    # numbers
    "attempts": ({"retry": {"attempts": 5_000_000_000}}, "retry.attempts", "spec.limits.retryAttempts"),
    "attempts below nothing": ({"retry": {"attempts": -1}}, "retry.attempts", "attempts -1 is negative"),
    "retried codes": ({"retry": {"codes": [1 << 40]}}, "retry.codes", "400 to 599"),
    "weight": ({"backendRefs": [{**API[0], "weight": 1 << 32}]}, "backendRefs[0]", "weight"),
    "weight below nothing": ({"backendRefs": [{**API[0], "weight": -5}]}, "backendRefs[0]", "weight"),
    "weights": ({"backendRefs": [{**API[0], "weight": 1_000_000}] * 4_295}, "backendRefs", "sum of the weights exceeds"),
    "redirect to a port": (redirect(port=65_536), "filters[0].requestRedirect", "65,535"),
    "redirect by a status": (redirect(statusCode=299), "filters[0].requestRedirect", "statusCode 299"),
    "redirect to a scheme": (redirect(scheme="ftp"), "filters[0].requestRedirect", "scheme ftp"),
    "mirrored percent": (
        filtered("RequestMirror", "requestMirror", backendRef=API[0], percent=1 << 33),
        "filters[0].requestMirror",
        "percent",
    ),
    "mirrored fraction": (
        filtered("RequestMirror", "requestMirror", backendRef=API[0], fraction={"numerator": 1, "denominator": 0}),
        "filters[0].requestMirror",
        "fraction 1/0",
    ),
    "maxAge": (cors(allowOrigins=["*"], maxAge=1 << 40), "filters[0].cors.maxAge", "maxAge"),
    "forwarded body": (
        auth(forwardBody={"maxSize": (1 << 31) - 1}),
        "filters[0].externalAuth",
        "spec.limits.forwardBodyBytes",
    ),
    # times
    "timeout": ({"timeouts": {"request": "soon"}}, "timeouts.request", "GEP-2257"),
    "backend timeout": ({"timeouts": {"backendRequest": "9999999999999h"}}, "timeouts.backendRequest", "GEP-2257"),
    "backoff": ({"retry": {"backoff": "-1s"}}, "retry.backoff", "GEP-2257"),
    # texts that are written into a message
    "header value with a line": (header("a\r\nx-b: c"), "filters[0]", "control characters"),
    "header value with NUL": (header("\x00"), "filters[0]", "control characters"),
    "header value with half a character": (header("\ud800"), "filters[0]", "control characters"),
    "long header value": (header("é" * 2_049), "filters[0]", "4,098 bytes; the limit is 4,096"),
    "long header name": (header("", "n" * 257), "filters[0]", "cannot be edited"),
    "rewritten hostname": (
        filtered("URLRewrite", "urlRewrite", hostname="a\r\nb"),
        "filters[0].urlRewrite.hostname",
        "'a\\r\\nb'",
    ),
    "redirected hostname": (redirect(hostname="a/b"), "filters[0].requestRedirect.hostname", "'a/b'"),
    "long path": (
        redirect(path={"type": "ReplaceFullPath", "replaceFullPath": "/" * 1_025}),
        "filters[0].requestRedirect.path",
        "1,025 characters",
    ),
    "kind of path": (redirect(path={"type": "Replace"}), "filters[0].requestRedirect.path", "type Replace"),
    "origin": (cors(allowOrigins=["https://a\nb"]), "filters[0].cors.allowOrigins", "not an origin"),
    "allowed method": (cors(allowMethods=["GET\r\nx: y"]), "filters[0].cors.allowMethods", "not the name"),
    "allowed header": (cors(allowHeaders=["a b"]), "filters[0].cors.allowHeaders", "not the name"),
    "exposed header": (cors(exposeHeaders=[""]), "filters[0].cors.exposeHeaders", "not the name"),
    "authorization path": (auth(path="/" + "a" * 1_024), "filters[0].externalAuth.http.path", "as another path"),
    "authorization header": (auth(allowedHeaders=["a\r\n"]), "filters[0].externalAuth.http.allowedHeaders", "'a\\r\\n'"),
    "cookie": (cookie(name="a=b\r\n\r\nHTTP/1.1 200 OK"), "sessionPersistence.cookie.name", "not the name of a cookie"),
    "long cookie": (cookie(name="c" * 129), "sessionPersistence.cookie.name", "spec.limits.sessionNameLength"),
    "cookie's path": (cookie(path="/;\r\n"), "sessionPersistence.cookie.path", "not a cookie path"),
    "session name of older bundles": (
        {"sessionPersistence": {"sessionName": "a b"}},
        "sessionPersistence.sessionName",
        "not the name of a cookie",
    ),
    "session header": (
        {"sessionPersistence": {"type": "Header", "sessionName": "a b\r\n"}},
        "sessionPersistence.sessionName",
        "not the name of a cookie or header",
    ),
    "kind of session": ({"sessionPersistence": {"type": "Jar"}}, "sessionPersistence", "type Jar"),
    "session's end": (
        {"sessionPersistence": {"absoluteTimeout": "never", "cookie": {"lifetimeType": "Permanent"}}},
        "sessionPersistence.absoluteTimeout",
        "GEP-2257",
    ),
    # filters
    "filter without settings": ({"filters": [{"type": "URLRewrite"}]}, "filters[0]", "do not match its type"),
    "filter with another's settings": (filtered("URLRewrite", "cors"), "filters[0]", "do not match its type"),
    "filter twice": ({"filters": 2 * header("a")["filters"]}, "filters", "keep one"),
    "rewrite and redirect": (
        {"filters": [*redirect()["filters"], *filtered("URLRewrite", "urlRewrite", hostname="a.example")["filters"]]},
        "filters",
        "cannot be rewritten too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_with_unsupported_settings_reports_it_and_refuses(name: str) -> None:
    rule, field, message = REFUSED[name]
    rules = [{"matches": [{"path": {"value": "/odd"}}], "backendRefs": API, **rule}, {"backendRefs": API}]
    _, snapshot = serve(mk_route("team/odd", "edge/web", [], [HOST], rules=rules, created="2026-01-01T00:00:00Z"))
    status, reason, text = conditions(snapshot)["PartiallyInvalid"]
    assert (status, reason) in {("True", "UnsupportedValue"), ("True", "IncompatibleFilters")}
    assert f"rules[0].{field}" in text
    assert message in text
    assert served(snapshot)[HOST] == [
        ("HTTPRoute team/odd", "direct_response"),
        ("HTTPRoute shop/own", "route"),
        ("HTTPRoute team/odd", "route"),
    ]


UNMATCHABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "path with a query": ({"path": {"value": "/a?b"}}, "path", "'/a?b' is not a path"),
    "relative path": ({"path": {"type": "Exact", "value": "a"}}, "path", "begin it with /"),
    "long path": ({"path": {"value": "/" + "a" * 1_024}}, "path", "1,025 characters"),
    "kind of path": ({"path": {"type": "Suffix", "value": "/a"}}, "path", "type Suffix"),
    "kind of header match": ({"headers": [{"name": "a", "value": "b", "type": "Prefix"}]}, "headers[0]", "type Prefix"),
    "header name": ({"headers": [{"name": "a b", "value": "c"}]}, "headers[0]", "'a b'"),
    "header value": ({"headers": [{"name": "a", "value": "\x00"}]}, "headers[0]", "not allowed in a request"),
    "long header value": ({"headers": [{"name": "a", "value": "b" * 4_097}]}, "headers[0]", "4,097 bytes"),
    "query name": ({"queryParams": [{"name": "", "value": "c"}]}, "queryParams[0]", "''"),
    "method": ({"method": "GET /"}, "method", "'GET /'"),
    "expression in UTF-8": (
        {"path": {"type": "RegularExpression", "value": r"/\x{100}"}},
        "path",
        "invalid escape sequence",
    ),
    "large expression": (
        {"headers": [{"name": "a", "type": "RegularExpression", "value": "a{1000}"}]},
        "headers[0]",
        "has program size 1,004; the limit is 1,000; use less, or raise spec.limits.regexProgramSize (up to 5,000)",
    ),
    "huge expression": (
        {"queryParams": [{"name": "a", "type": "RegularExpression", "value": ".{1000}" * 20}]},
        "queryParams[0]",
        "is too large",
    ),
    "long expression": (
        {"path": {"type": "RegularExpression", "value": "/[" + "a" * 4_096 + "]"}},
        "path",
        "4,099 characters",
    ),
}


@pytest.mark.parametrize("name", UNMATCHABLE)
def test_a_match_that_envoy_cannot_express_matches_nothing_and_the_rest_of_its_rule_refuses(name: str) -> None:
    match, field, message = UNMATCHABLE[name]
    rules = [{"matches": [match, {"path": {"value": "/beside"}}], "backendRefs": API}, {"backendRefs": API}]
    _, snapshot = serve(mk_route("team/odd", "edge/web", [], [HOST], rules=rules, created="2026-01-01T00:00:00Z"))
    assert f"rules[0].matches[0].{field}" in conditions(snapshot)["PartiallyInvalid"][2]
    assert message in conditions(snapshot)["PartiallyInvalid"][2]
    assert served(snapshot)[HOST] == [
        ("HTTPRoute team/odd", "direct_response"),
        ("HTTPRoute shop/own", "route"),
        ("HTTPRoute team/odd", "route"),
    ]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"type": "RegularExpression", "service": r"\Qfoo", "method": "bar"}, "missing )"),
        ({"type": "RegularExpression", "service": "a)(?:b"}, "unexpected )"),
        ({"type": "RegularExpression", "method": r"\x{100}"}, "invalid escape sequence"),
        ({"service": "foo?"}, "not the name of a gRPC service"),
        ({"method": "a/b"}, "not the name of a gRPC method"),
        ({"type": "Prefix", "service": "foo"}, "type Prefix"),
    ],
)
def test_a_call_is_matched_by_one_expression_which_must_hold_as_a_whole(method: dict[str, str], message: str) -> None:
    rules = [{"matches": [{"method": method}], "backendRefs": API}, {"backendRefs": API}]
    _, snapshot = serve(mk_route("team/odd", "edge/web", [], [HOST], rules=rules, kind="GRPCRoute"))
    assert message in conditions(snapshot, Key("GRPCRoute", "team", "odd"))["PartiallyInvalid"][2]
    assert ("GRPCRoute team/odd", "direct_response") not in served(snapshot)[HOST]


@pytest.mark.parametrize(("kind", "section"), [("TCPRoute", "tcp"), ("UDPRoute", "udp")])
@pytest.mark.parametrize("weight", [-1, 1 << 32])
def test_a_stream_whose_weights_cannot_be_is_closed(kind: str, section: str, weight: int) -> None:
    refs = [{**API[0], "weight": weight}, API[0]]
    _, snapshot = serve(mk_stream_route(kind, "team/odd", "edge/web", refs, section=section))
    assert conditions(snapshot, Key(kind, "team", "odd"))["Accepted"][:2] == ("False", "UnsupportedValue")
    assert not [body for body in (r.body for r in snapshot.xds.values()) if b"team/api" in body]


@pytest.mark.parametrize("hostname", ["a*b", "*", "a.*.b", "a\r\nb", "", "a..b", "x" * 254])
def test_an_invalid_hostname_does_not_match_all(hostname: str) -> None:
    _, snapshot = serve(mk_route("team/odd", "edge/web", API, [hostname]))
    assert conditions(snapshot)["Accepted"][:2] == ("False", "UnsupportedValue")
    assert served(snapshot).keys() == {HOST}


@pytest.mark.parametrize("odd", [{"hostname": "*x.example"}, {"port": 70_000}, {"port": 0}, {"port": -1}, {"name": "a/b"}])
def test_a_listener_that_envoy_would_refuse_is_not_served_and_its_neighbours_are(odd: dict[str, Any]) -> None:
    allowed = {"allowedListeners": {"namespaces": {"from": "All"}}}
    listener = {"name": "odd", "port": 80, "protocol": "HTTP", "hostname": "x.example", **odd}
    _, before = serve(mk_listener_set("team/set", "edge/web", []), **allowed)
    _, after = serve(mk_listener_set("team/set", "edge/web", [listener]), **allowed)
    listeners = {name: r.body for (_, type_url, name), r in after.xds.items() if type_url == LISTENER}
    assert listeners == {name: r.body for (_, type_url, name), r in before.xds.items() if type_url == LISTENER}
    status: Any = after.status[Key("ListenerSet", "team", "set")]
    assert ("Accepted", "False", "UnsupportedValue") in {(c.type, c.status, c.reason) for c in status.listeners[0].conditions}


# --- limits ----------------------------------------------------------------------------------------------------------


def expressions(number: int, pattern: str = "/v[0-9]+") -> list[dict[str, Any]]:
    return [
        {"matches": [{"path": {"type": "RegularExpression", "value": f"{pattern}/{n}"}}], "backendRefs": API}
        for n in range(number)
    ]


def profiled(**said: int) -> tuple[Any, dict[str, Any]]:
    return mk_profile("edge/own", limits=said), {"infrastructure": {"parametersRef": profile_ref("own")}}


def test_expressions_past_the_number_that_a_route_may_have_are_not_compiled_and_match_nothing() -> None:
    profile, spec = profiled(regexesPerRoute=2)
    program_size.cache_clear()
    _, snapshot = serve(profile, mk_route("team/odd", "edge/web", [], [HOST], rules=expressions(5)), **spec)
    message = conditions(snapshot)["PartiallyInvalid"][2]
    assert [f"rules[{n}]" in message for n in range(5)] == [False, False, True, True, True]
    assert "spec.limits.regexesPerRoute" in message
    assert [name for name, _ in served(snapshot)[HOST]].count("HTTPRoute team/odd") == 2
    assert program_size.cache_info().misses == 2


def test_an_expression_is_compiled_once_however_often_its_route_is_looked_at() -> None:
    program_size.cache_clear()
    engine, _ = serve(mk_route("team/odd", "edge/web", [], [HOST], rules=expressions(3)))
    engine.apply(keyed(mk_route("team/odd", "edge/web", [], [HOST, "more.example"], rules=expressions(3))))
    engine.settle()
    assert program_size.cache_info().misses == 3


def test_a_raised_limit_of_a_profile_serves_refused_routes() -> None:
    rules = [{"retry": {"attempts": 500}, "backendRefs": API}]
    _, snapshot = serve(mk_route("team/odd", "edge/web", [], [HOST], rules=rules, created="2026-01-01T00:00:00Z"))
    assert conditions(snapshot)["Accepted"][:2] == ("False", "UnsupportedValue")
    profile, spec = profiled(retryAttempts=500)
    _, snapshot = serve(profile, mk_route("team/odd", "edge/web", [], [HOST], rules=rules), **spec)
    assert conditions(snapshot)["Accepted"][0] == "True"


def paths(number: int, prefix: str = "/p") -> list[dict[str, Any]]:
    return [{"matches": [{"path": {"value": f"{prefix}{n}"}}], "backendRefs": API} for n in range(number)]


def test_a_namespace_with_too_many_matches_under_a_hostname_loses_its_younger_routes_there() -> None:
    profile, spec = profiled(matchesPerHostname=5)
    old = mk_route("team/old", "edge/web", [], [HOST], rules=paths(3, "/old"), created="2021-01-01T00:00:00Z")
    odd = mk_route("team/odd", "edge/web", [], [HOST, "own.example"], rules=paths(3), created="2022-01-01T00:00:00Z")
    small = mk_route("team/small", "edge/web", [], [HOST], rules=paths(2, "/s"), created="2023-01-01T00:00:00Z")
    _, snapshot = serve(profile, old, odd, small, **spec)
    origins = {host: {name for name, _ in routes} for host, routes in served(snapshot).items()}
    assert origins[HOST] == {"HTTPRoute shop/own", "HTTPRoute team/old", "HTTPRoute team/small"}
    assert origins["own.example"] == {"HTTPRoute team/odd"}
    message = conditions(snapshot)["PartiallyInvalid"][2]
    assert message.startswith("Dropped Rule: ")
    assert f"not served under {HOST}" in message
    assert "spec.limits.matchesPerHostname" in message
    assert "PartiallyInvalid" not in conditions(snapshot, Key("HTTPRoute", "team", "old"))


def test_a_route_that_exceeds_all_limits_is_not_accepted_and_keeps_its_name() -> None:
    profile, spec = profiled(matchesPerHostname=5)
    _, snapshot = serve(profile, mk_route("team/odd", "edge/web", [], ["own.example"], rules=paths(6)), **spec)
    assert conditions(snapshot)["Accepted"][:2] == ("False", "UnsupportedValue")
    assert served(snapshot)["own.example"] == []


def test_the_sizes_of_a_namespaces_expressions_under_a_hostname_add_up() -> None:
    profile, spec = profiled(regexSizePerHostname=100)
    old = mk_route("team/old", "edge/web", [], [HOST], rules=expressions(3), created="2021-01-01T00:00:00Z")
    odd = mk_route("team/odd", "edge/web", [], [HOST], rules=expressions(20), created="2022-01-01T00:00:00Z")
    _, snapshot = serve(profile, old, odd, **spec)
    assert "spec.limits.regexSizePerHostname" in conditions(snapshot)["Accepted"][2]
    assert {name for name, _ in served(snapshot)[HOST]} == {"HTTPRoute shop/own", "HTTPRoute team/old"}


def test_our_own_expressions_fit_what_envoy_takes() -> None:
    from lasthop.engine.outputs.envoy.tls import dns_regex

    longest = ".".join(["a" * 63] * 4)[:253]
    for pattern in (dns_regex(longest), dns_regex(f"*.{longest[2:]}"), "^/" + r"\." * 1_023 + "/*"):
        size = program_size(pattern)
        assert isinstance(size, int)
        assert size < REGEX_CEILING
    assert ceiling("regex_program_size") == REGEX_CEILING


def test_without_a_profile_the_defaults_hold() -> None:
    engine, _ = serve()
    assert limits(engine.graph, GATEWAY) == Limits()
