"""ExternalAuth as Envoy has it: in routes alone, never a way around it, and its server's policy behind the hop's name."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from lasthop.base.api.meta import Object
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from lasthop.engine.outputs.envoy.route_filters import EXTERNAL_AUTH
from tests.snapshot import Snapshot, settle, settled
from tests.summary_routes import ext_authz
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_external_auth,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
)

AUTH = {"name": "auth", "port": 443}
API = [{"name": "api", "port": 443}]
BASE = (
    *(mk_class(), mk_gateway("shop/web"), mk_service("shop/api"), mk_service("shop/auth")),
    *(mk_config_map("shop/ca", ca_pem("good")), mk_policy("shop/auth", "auth", "auth.example", ["ca"])),
    mk_slice("shop/auth-1", "auth", ["10.0.0.1"]),
)


def guarded(*filters: dict[str, Any], **more: Any) -> Object:
    return mk_route("shop/r", "shop/web", [], rules=[{"filters": list(filters), "backendRefs": API, **more}])


def running(*objects: Object) -> tuple[Engine, Snapshot]:
    return settled(keyed(*BASE, *objects))


def of_type(snapshot: Snapshot, *types: str) -> dict[Any, bytes]:
    return {name: resource.body for name, resource in snapshot.xds.items() if name[1] in types}


def messages(snapshot: Snapshot) -> list[Any]:
    (body,) = of_type(snapshot, ROUTES).values()
    return [route for host in route_pb2.RouteConfiguration.FromString(body).virtual_hosts for route in host.routes]


def asked_by(route: Any) -> Any:
    config, per_route = route_components_pb2.FilterConfig(), extension_matcher_pb2.ExtensionWithMatcherPerRoute()
    assert route.typed_per_filter_config[EXTERNAL_AUTH].Unpack(config) and config.config.Unpack(per_route)
    assert not config.disabled and not config.is_optional
    return ext_authz(per_route)


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
def test_no_filter_that_comes_goes_or_changes_touches_a_listener(protocol: str) -> None:
    engine, snapshot = running(guarded())
    before = of_type(snapshot, LISTENER)
    for filters in (
        [mk_external_auth(protocol, AUTH)],
        [mk_external_auth(protocol, AUTH, allowedHeaders=["x-a"], forwardBody={"maxSize": 5})],
        [],
    ):
        engine.apply(keyed(guarded(*filters)))
        settle(engine, snapshot)
        assert of_type(snapshot, LISTENER) == before
        assert bool(messages(snapshot)[0].typed_per_filter_config) == bool(filters)


@pytest.mark.parametrize(
    "edit",
    [
        mk_policy("shop/auth", "auth", "other.example", ["ca"]),
        mk_policy("shop/auth", "auth", "auth.example", ["missing"]),
        mk_config_map("shop/ca", ca_pem("other")),
        mk_slice("shop/auth-1", "auth", ["10.0.0.2"]),
    ],
    ids=["policy", "invalid policy", "CA", "endpoints"],
)
def test_edits_of_the_server_alone_touch_neither_routes_nor_listeners(edit: Object) -> None:
    engine, snapshot = running(guarded(mk_external_auth("GRPC", AUTH)))
    before, all_before = of_type(snapshot, LISTENER, ROUTES), dict(snapshot.xds)
    engine.apply(keyed(edit))
    settle(engine, snapshot)
    assert of_type(snapshot, LISTENER, ROUTES) == before
    assert snapshot.xds != all_before


def test_the_filter_is_off_in_the_listener_and_before_everything_that_acts_on_a_request() -> None:
    _, snapshot = running(guarded())
    (body,) = of_type(snapshot, LISTENER).values()
    manager = hcm_pb2.HttpConnectionManager()
    assert listener_pb2.Listener.FromString(body).filter_chains[0].filters[0].typed_config.Unpack(manager)
    names = [(filter.name, filter.disabled) for filter in manager.http_filters]
    assert names.index((EXTERNAL_AUTH, True)) < names.index(("envoy.filters.http.stateful_session", True))
    assert names[-1] == ("envoy.filters.http.router", False)


def test_every_message_of_a_rule_asks() -> None:
    """Backends that rewrite paths have a message each."""
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}}
    backends = [{**API[0], "filters": [rewrite]}, {"name": "other", "port": 443}]
    _, snapshot = running(guarded(mk_external_auth("HTTP", AUTH), backendRefs=backends))
    sent = messages(snapshot)
    assert len(sent) == 2
    for message in sent:
        assert asked_by(message).http_service.server_uri.cluster == "shop/web/shop/auth/443/auto"


def test_a_server_may_not_say_how_long_a_request_is_or_where_it_goes() -> None:
    _, snapshot = running(guarded(mk_external_auth("HTTP", AUTH), matches=[{"path": {"value": "/all"}}]))
    rules = asked_by(messages(snapshot)[0]).decoder_header_mutation_rules.disallow_expression.regex.split("|")
    assert {"host", "content-length", "transfer-encoding", "connection", "upgrade", "content-.*"} <= set(rules)
    _, snapshot = running(guarded(mk_external_auth("HTTP", AUTH, allowedResponseHeaders=["content-type"])))
    rules = asked_by(messages(snapshot)[0]).decoder_header_mutation_rules.disallow_expression.regex.split("|")
    assert "content-length" in rules and "content-.*" not in rules


@pytest.mark.parametrize(("request_limit", "expected"), [("3s", 3), ("0s", 10), ("60s", 10)])
def test_a_server_has_no_longer_than_the_whole_request(request_limit: str, expected: int) -> None:
    _, snapshot = running(guarded(mk_external_auth("GRPC", AUTH), timeouts={"request": request_limit}))
    assert asked_by(messages(snapshot)[0]).grpc_service.timeout.seconds == expected


def test_its_server_is_audited_and_fails_closed_with_its_policy() -> None:
    engine, snapshot = running(guarded(mk_external_auth("GRPC", AUTH)))
    assert [(hop.backend.path, hop.manner) for hop in engine.hops()] == [
        ("shop/api", "plaintext"),
        ("shop/auth", "verified"),
    ]
    engine.apply(keyed(mk_policy("shop/auth", "auth", "auth.example", ["missing"])))
    settle(engine, snapshot)
    assert [hop.manner for hop in engine.hops()] == ["plaintext", "failing closed"]
    assert not [name for _, type_url, name in snapshot.xds if type_url == CLUSTER and "/auth/" in name]
