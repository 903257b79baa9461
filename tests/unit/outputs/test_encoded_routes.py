"""Replacements of routes that cannot be built or that Envoy refused, without effect on other routes."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.config.route.v3 import route_pb2
from envoy.type.matcher.v3 import http_inputs_pb2, regex_pb2
from google.protobuf.duration_pb2 import Duration
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import RouteStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy import encoded_routes, route_messages, routes
from lasthop.engine.outputs.envoy.encode import field, packed
from lasthop.engine.outputs.envoy.quarantine import withhold
from lasthop.engine.outputs.envoy.resource import ROUTES, Part, Resource
from lasthop.engine.outputs.envoy.route_index import ANY_VALUE
from lasthop.engine.plan.routing import Forward, Match, PathType, Retry, Route, WeightedBackend
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.routing import routes as resolved
from lasthop.engine.resolve.routing.attachment import in_order
from tests.snapshot import Snapshot, settle
from tests.summary_routes import host_lines
from tests.world import NOW, keyed, mk_class, mk_gateway, mk_route, mk_service

GATEWAY = Key("Gateway", "a", "gw")
TABLE = "a/gw/80"
EVIL = Key("HTTPRoute", "evil", "r")
ALL = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}


def rule(service: str, *paths: str, **match: Any) -> dict[str, Any]:
    matches = [{"path": {"type": "PathPrefix", "value": path}, **match} for path in paths]
    return {"matches": matches, "backendRefs": [{"name": service, "port": 443}]}


VICTIM = mk_route("a/shop", "a/gw", [], ["shop.test"], rules=[rule("s", "/")])
WILDCARD = mk_route("evil/wild", "a/gw", [{"name": "s", "port": 443}], ["*.test"])


def evil(*rules: dict[str, Any]) -> Object:
    return mk_route("evil/r", "a/gw", [], ["shop.test"], rules=list(rules) or [rule("s", "/login", "/zzz")])


class World:
    def __init__(self, *objects: Object) -> None:
        self.engine, self.snapshot = Engine(now=NOW.timestamp()), Snapshot()
        self.put(mk_class(), mk_gateway("a/gw", [ALL]), mk_service("a/s"), mk_service("evil/s"), VICTIM, WILDCARD, *objects)

    def put(self, *objects: Object) -> None:
        self.engine.apply(keyed(*objects))
        settle(self.engine, self.snapshot)

    @property
    def resource(self) -> Resource:
        return self.snapshot.xds[GATEWAY, ROUTES, TABLE]

    @property
    def table(self) -> Any:
        return route_pb2.RouteConfiguration.FromString(self.resource.body)

    @property
    def hosts(self) -> dict[str, Any]:
        return {host.name: host_lines(host) for host in self.table.virtual_hosts}

    def condition(self, key: Key, type_: str) -> tuple[str, str]:
        status = self.snapshot.status[key]
        assert isinstance(status, RouteStatus)
        (condition,) = [c for c in status.parents[0].conditions if c.type == type_]
        return condition.status, condition.reason

    def withhold(self, part: str, complaint: str = "Envoy does not like it") -> None:
        withhold(self.engine.graph, Part(ROUTES, part, self.resource.parts[part]), complaint)
        settle(self.engine, self.snapshot)


FAULT = ValueError("Value out of range: 5000000000")
TO_VICTIM = "/ -> a/gw/a/s/443/auto"


def broken(monkeypatch: pytest.MonkeyPatch, path: str = "") -> None:
    """Makes routes of the tenant, or routes of one of its paths, fail to encode."""
    real = route_messages.envoy_routes

    def fails(route: Any, listening: Any) -> Any:
        if route.origin == str(EVIL) and path in ("", route.match.path):
            raise FAULT
        return real(route, listening)

    monkeypatch.setattr(encoded_routes, "envoy_routes", fails)


def test_a_match_that_cannot_be_encoded_answers_500_and_the_rest_of_the_host_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "/zzz")
    world = World(evil())
    assert world.hosts["shop.test"] == ["/login/ -> a/gw/evil/s/443/auto", "/zzz/ -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("True", "Accepted")
    assert world.condition(EVIL, "PartiallyInvalid") == ("True", "InternalError")
    (finding,) = [f for f in world.engine.findings() if f.object == EVIL]
    assert finding.reason == "InternalError" and "1 of 2 matches" in finding.message and "/zzz" in finding.message
    assert world.engine.graph.crashes == {}


def test_a_route_of_which_nothing_can_be_encoded_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    world = World(evil())
    assert world.hosts["shop.test"] == ["/login/ -> 500", "/zzz/ -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("False", "InternalError")
    assert world.condition(Key("HTTPRoute", "a", "shop"), "Accepted") == ("True", "Accepted")


def test_a_number_that_envoy_has_no_room_for_ends_in_its_own_500() -> None:
    """Security finding 2, below the limits of other layers."""
    match = Match("/zzz", PathType.PREFIX)
    backend = WeightedBackend(1, Hop(GATEWAY, Key("Service", "evil", "s"), 443, Protocol.AUTO))
    action = Forward((backend,), retry=Retry(5_000_000_000))
    plan = Route(match, action, str(EVIL))
    entry, wrong = encoded_routes._entry(plan, route_messages.Listening("http", 80), encoded_routes.ServedLevel.AS_WRITTEN)
    assert isinstance(wrong, ValueError) and entry is not None
    assert rc.Route.FromString(entry.other[0]).direct_response.status == 500


def test_a_route_that_cannot_be_resolved_refuses_what_it_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    real = resolved._route

    def fails(g: Any, route: Key, *rest: Any) -> Any:
        if route == EVIL:
            raise FAULT
        return real(g, route, *rest)

    monkeypatch.setattr(resolved, "_route", fails)
    world = World(evil())
    assert world.hosts["shop.test"] == ["/login/ -> 500", "/zzz/ -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("False", "InternalError")


def test_where_not_even_the_match_can_be_encoded_its_literal_path_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rank of a route that had been written so: it takes no more than its author could have taken."""
    broken(monkeypatch)
    real = route_messages.route_match

    def fails(match: Any) -> Any:
        if match.headers:
            raise FAULT
        return real(match)

    monkeypatch.setattr(route_messages, "route_match", fails)
    header = {"headers": [{"name": "x", "value": "y"}]}
    pattern = {"matches": [{"path": {"type": "RegularExpression", "value": "/a.*"}, **header}]}
    other = mk_route("a/other", "a/gw", [], ["shop.test"], rules=[rule("s", "/login")])  # of the same age, first by name
    world = World(evil(rule("s", "/login", "/zzz", **header), {**rule("s", "/"), **pattern}), other)
    assert world.hosts["shop.test"] == ["/login/ -> a/gw/a/s/443/auto", "/login/ -> 500", "/zzz/ -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("False", "InternalError")


def test_a_host_that_cannot_be_joined_answers_500_and_is_never_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ranked: Any) -> Any:
        ordered = list(ranked)
        if len(ordered) == 2:
            raise FAULT
        return in_order(ordered)

    monkeypatch.setattr(routes, "in_order", fails)
    world = World(evil())
    assert world.hosts["shop.test"] == ["/ -> 500"]
    assert world.hosts["*.test"] == ["/ -> a/gw/evil/s/443/auto"]
    world.engine.apply({EVIL: None})
    settle(world.engine, world.snapshot)
    assert world.hosts["shop.test"] == [TO_VICTIM]


# --- what Envoy refuses ----------------------------------------------------------------------------------------------


def part(key: Key, host: str = "shop.test") -> str:
    return f"{TABLE}#{host}#{key}"


def test_a_table_has_a_part_for_each_route_under_each_hostname_and_says_whose_it_is() -> None:
    world = World(evil())
    assert world.resource.parts.keys() == world.resource.owners.keys()
    assert world.resource.owners == {
        part(EVIL): EVIL,
        part(Key("HTTPRoute", "a", "shop")): Key("HTTPRoute", "a", "shop"),
        part(Key("HTTPRoute", "evil", "wild"), "*.test"): Key("HTTPRoute", "evil", "wild"),
    }


def test_a_refused_route_gives_way_step_by_step_and_alone() -> None:
    header = {"headers": [{"name": "x", "value": "y"}], "method": "GET"}
    world = World(evil(rule("s", "/login", **header)))
    assert world.hosts["shop.test"] == ["/login/ [x = y, :method = GET] -> a/gw/evil/s/443/auto", TO_VICTIM]
    before = dict(world.resource.parts)
    world.withhold(part(EVIL))
    assert world.hosts["shop.test"] == ["/login/ [x = y, :method = GET] -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("False", "RefusedByProxy")
    (finding,) = [f for f in world.engine.findings() if f.object == EVIL]
    assert finding.reason == "RefusedByProxy" and "Envoy does not like it" in finding.message
    world.withhold(part(EVIL))  # what stands in is refused, too
    assert world.hosts["shop.test"] == ["/login/ -> 500", TO_VICTIM]
    world.withhold(part(EVIL))
    assert world.hosts["shop.test"] == [TO_VICTIM]
    assert part(EVIL) not in world.resource.parts  # nothing is left that could be blamed
    victim = part(Key("HTTPRoute", "a", "shop"))
    assert world.resource.parts[victim] == before[victim]
    world.put(evil(rule("s", "/other")))  # an edit is another part
    assert world.hosts["shop.test"] == ["/other/ -> a/gw/evil/s/443/auto", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("True", "Accepted")


def test_a_mere_suspect_is_withheld_and_keeps_its_good_name() -> None:
    world = World(evil())
    world.withhold(part(EVIL), "")
    assert world.hosts["shop.test"] == ["/login/ -> 500", "/zzz/ -> 500", TO_VICTIM]
    assert world.condition(EVIL, "Accepted") == ("True", "Accepted")
    assert not [f for f in world.engine.findings() if f.object == EVIL]


def test_a_route_that_is_refused_under_one_of_its_hostnames_is_partially_invalid() -> None:
    world = World(mk_route("evil/r", "a/gw", [{"name": "s", "port": 443}], ["one.test", "two.test"]))
    world.withhold(part(EVIL, "one.test"))
    assert world.hosts["one.test"] == ["/ -> 500"]
    assert world.hosts["two.test"] == ["/ -> a/gw/evil/s/443/auto"]
    assert world.condition(EVIL, "PartiallyInvalid") == ("True", "RefusedByProxy")


# --- bytes -----------------------------------------------------------------------------------------------------------


H2C = [{"name": "https", "port": 443, "appProtocol": "kubernetes.io/h2c"}]


@pytest.mark.parametrize("apart", [False, True])
def test_the_joined_tree_is_the_message_that_is_built_from_the_same_routes(apart: bool) -> None:
    many = [f"/~{number}" if number % 2 else f"/~{number - 1}/{'x' * number}" for number in range(1, 41)]
    pattern = {"path": {"type": "RegularExpression", "value": "/.*"}}
    world = World(mk_route("evil/r", "a/gw", [], ["many.test"], rules=[rule("s", *many), {**rule("s"), "matches": [pattern]}]))
    if apart:
        world.put(mk_service("evil/s", H2C))
    (host,) = [h for h in world.table.virtual_hosts if h.name == "many.test"]
    built = tree(many, "auto")
    if apart:
        built = matcher_pb2.Matcher()
        upgrades = built.matcher_list.matchers.add()
        upgrades.predicate.single_predicate.input.CopyFrom(header("upgrade"))
        upgrades.predicate.single_predicate.value_match.safe_regex.CopyFrom(ANY_VALUE)
        upgrades.on_match.matcher.CopyFrom(tree(many, "h1-upgrade"))
        built.on_no_match.matcher.CopyFrom(tree(many, "auto"))
    assert host.matcher == built and not host.routes
    body = routes.encoded_host(world.engine.graph, GATEWAY, "80", "many.test").body
    assert len(field(2, host.SerializeToString())) == len(body)


def header(name: str) -> Any:
    config = packed(http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=name))
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=config)


def tree(paths: list[str], protocol: str) -> Any:
    """A leaf lists the prefixes of its key, and the regular expression, which comes before all prefixes."""
    matcher = matcher_pb2.Matcher()
    matcher.matcher_tree.input.CopyFrom(header(":path"))
    cluster = f"a/gw/evil/s/443/{protocol}"
    not_found = rc.RouteAction.INTERNAL_SERVER_ERROR
    action = rc.RouteAction(
        cluster=cluster, timeout=Duration(), idle_timeout=Duration(seconds=300), cluster_not_found_response_code=not_found
    )
    expression = rc.Route(name=str(EVIL), match=rc.RouteMatch(safe_regex=regex_pb2.RegexMatcher(regex="/.*")), route=action)
    for path in paths:
        fitting = sorted((other for other in paths if path.startswith(other)), key=len, reverse=True)
        prefixes = [rc.Route(name=str(EVIL), match=rc.RouteMatch(path_separated_prefix=p), route=action) for p in fitting]
        leaf = packed(rc.RouteList(routes=[expression, *prefixes]))
        matcher.matcher_tree.prefix_match_map.map[path].action.name = "routes"
        matcher.matcher_tree.prefix_match_map.map[path].action.typed_config.CopyFrom(leaf)
    matcher.on_no_match.action.name = "routes"
    matcher.on_no_match.action.typed_config.CopyFrom(packed(expression))
    return matcher


def test_upgrades_of_an_h2c_backend_alone_have_a_route_and_a_cluster_of_their_own() -> None:
    world = World()
    (host,) = [h for h in world.table.virtual_hosts if h.name == "shop.test"]
    assert [route.route.cluster for route in host.routes] == ["a/gw/a/s/443/auto"]
    assert {name.rpartition("/")[2] for _, name in world.snapshot.clusters()} == {"auto"}
    world.put(mk_service("a/s", H2C))
    (host,) = [h for h in world.table.virtual_hosts if h.name == "shop.test"]
    assert (GATEWAY, "a/gw/a/s/443/h1-upgrade") in world.snapshot.clusters()
    upgrade, other = host.routes
    assert upgrade.route.cluster == "a/gw/a/s/443/h1-upgrade" and other.route.cluster == "a/gw/a/s/443/auto"
    assert [(h.name, h.present_match) for h in upgrade.match.headers] == [("upgrade", True)]
    assert upgrade.match.prefix == "/" and not other.match.headers


def test_equal_hosts_have_equal_versions_and_any_change_another() -> None:
    one, same, other = World(evil()), World(evil()), World(evil(rule("s", "/login")))
    assert one.resource == same.resource
    assert one.resource.version != other.resource.version
