"""The order of routes and the tree that replaces it for many routes both choose by the spec."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.encoded_routes import index_path
from lasthop.engine.outputs.envoy.route_index import leaves
from lasthop.engine.plan.routing import Forward, Match, PathType, Route, ValueMatch
from lasthop.engine.resolve.routing.attachment import in_order, rank
from lasthop.engine.resolve.routing.budgets import VIRTUAL_HOSTS, RouteCost
from lasthop.engine.resolve.routing.routes import routes
from lasthop.engine.store.graph import Graph, query
from tests.examples import slow
from tests.route_oracle import HOST, Document, Request, chosen, match_documents, matches, requests, route_documents
from tests.world import keyed, mk, mk_class, mk_gateway

GATEWAY = Key("Gateway", "shop", "web")
LISTENERS = {"abc.example.com": HOST, "*.example.com": "xyz.example.com"}
"""A listener's hostname, and a host that all routes which it takes are served under."""


def resolved(documents: list[Document], hostname: str) -> tuple[Route, ...]:
    """The routes of the virtual host in Lasthop's order; each leads to a Service that has the rule's name."""
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "hostname": hostname}
    listener["allowedRoutes"] = {"namespaces": {"from": "All"}}
    engine = Engine()
    engine.apply(keyed(mk_class(), mk_gateway("shop/web", [listener]), *(_route(document) for document in documents)))
    engine.settle()
    assert engine.graph.crashes == {}
    return listed_routes(engine.graph, hostname)


@query
def listed_routes(g: Graph, hostname: str) -> tuple[Route, ...]:
    """Returns the routes of a virtual host in order, before they are encoded."""
    members = [cost.route for cost in VIRTUAL_HOSTS.of(g, GATEWAY, "80", hostname) if isinstance(cost, RouteCost)]
    ranked = ((rank(g, key, hostname), routes(g, key, GATEWAY)) for key in members)
    return tuple(
        in_order((own, [(route.match.precedence, route) for route in own_routes]) for own, own_routes in ranked if own)
    )


def _route(document: Document) -> Any:
    metadata, spec = document["metadata"], document["spec"]
    rules = [{**rule, "backendRefs": [{"name": rule["name"], "port": 80}]} for rule in spec["rules"]]
    parents = [{"name": "web", "namespace": "shop"}]
    path = f"{metadata['namespace']}/{metadata['name']}"
    spec = {"parentRefs": parents, "hostnames": spec["hostnames"], "rules": rules}
    return mk(document.get("kind", "HTTPRoute"), path, created=metadata["creationTimestamp"], spec=spec)


def rule_name(route: Route) -> str:
    assert isinstance(route.action, Forward)
    hop = route.action.backends[0].hop
    assert hop
    return hop.backend.name


def fits(match: Match, request: Request) -> bool:
    if match.grpc and not request.grpc:
        return False
    return matches(as_document(match), request)


def as_document(match: Match) -> Document:
    """Converts a match to a document. A gRPC call is matched by its path too, as in Envoy's configuration."""
    document: Document = {"path": {"type": str(match.path_type), "value": match.path}}
    document["headers"] = [_value(v) for v in match.headers]
    document["queryParams"] = [_value(v) for v in match.query]
    return {**document, "method": match.method} if match.method else document


def _value(value: ValueMatch) -> Document:
    return {"name": value.name, "value": value.value, "type": "RegularExpression" if value.regex else "Exact"}


def scan(listed: list[Match], numbers: list[int], request: Request) -> int | None:
    """Returns the first matching route of a list, like Envoy."""
    return next((number for number in numbers if fits(listed[number], request)), None)


def by_the_tree(listed: list[Match], request: Request) -> int | None:
    """What Envoy does with the tree: the longest key that `:path`, with its query, begins with; then the leaf's list."""
    tree = leaves([index_path(match) for match in listed])
    assert tree is not None
    return scan(listed, tree[max((key for key in tree if request.seen.startswith(key)), key=len)], request)


@slow(60)
@given(route_documents(), st.sampled_from(sorted(LISTENERS)), st.lists(requests(), min_size=15, max_size=15))
def test_the_list_and_the_tree_choose_the_route_that_the_spec_chooses(
    documents: list[Document], hostname: str, sent: list[Request]
) -> None:
    resolved_routes = resolved(documents, hostname)
    listed = [route.match for route in resolved_routes]
    for request in sent:
        by_the_list = scan(listed, list(range(len(listed))), request)
        expected = chosen(documents, request, LISTENERS[hostname])
        assert (None if by_the_list is None else rule_name(resolved_routes[by_the_list])) == expected
        assert by_the_tree(listed, request) == by_the_list


def test_the_first_by_namespace_and_name_wins_among_equally_old_routes() -> None:
    """A hyphen sorts before the slash: `a-b/r` before `a/r`."""
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}
    documents = [
        {
            "metadata": {"name": "r", "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"hostnames": [HOST], "rules": [{"name": f"of-{namespace}", **rule}]},
        }
        for namespace in ("a", "a-b")
    ]
    assert [rule_name(route) for route in resolved(documents, HOST)] == ["of-a-b", "of-a"]
    assert chosen(documents, Request("/")) == "of-a-b"


def plain(document: Document) -> Match:
    path = document["path"]
    kind = PathType(path["type"])
    value = path["value"].rstrip("/") or "/" if kind is PathType.PREFIX else path["value"]
    values = {
        field: tuple(ValueMatch(v["name"], v["value"], v["type"] != "Exact") for v in document.get(field, ()))
        for field in ("headers", "queryParams")
    }
    return Match(value, kind, values["headers"], values["queryParams"], document.get("method", ""))


@slow(100)
@given(st.lists(match_documents(), max_size=60), st.lists(requests(), min_size=10, max_size=10))
def test_the_tree_chooses_as_the_list_does_in_any_order(documents: list[Document], sent: list[Request]) -> None:
    listed = [plain(document) for document in documents]
    for request in sent:
        assert by_the_tree(listed, request) == scan(listed, list(range(len(listed))), request)


def test_a_thousand_paths_leave_a_few_routes_to_try() -> None:
    listed = [Match(f"/team-{number}/api", PathType.PREFIX) for number in range(1_000)] + [Match("/", PathType.PREFIX)]
    tree = leaves([index_path(match) for match in listed])
    assert tree is not None and max(len(numbers) for numbers in tree.values()) == 2
