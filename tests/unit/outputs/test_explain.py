"""Explanations of small worlds, from the recorded reads of the query graph."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key, Object
from lasthop.edge.slices import step_by_step
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.explain.explain import explain, tree
from lasthop.engine.outputs.explain.fact import Fact, FactState
from tests.snapshot import settled
from tests.world import (
    STREAMS,
    ca_pem,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_external_auth,
    mk_gateway,
    mk_grant,
    mk_listener_set,
    mk_policy,
    mk_route,
    mk_secret,
    mk_service,
    mk_slice,
    mk_stream_route,
    mk_telemetry_policy,
    mk_traffic_policy,
)

WORLD = (
    mk_class(),
    mk_gateway("shop/web"),
    mk_route("shop/r", "shop/web", [{"name": "api", "port": 443}], ["shop.example"]),
    mk_service("shop/api"),
    mk_slice("shop/api-1", "api", ["10.0.0.1"]),
    mk_policy("shop/p", "api", "api.internal", ["corp-ca"], created="2026-01-01T00:00:00Z"),
    mk_config_map("shop/corp-ca", ca_pem("Corp CA")),
)
ROUTE = Key("HTTPRoute", "shop", "r")
POLICY = Key("BackendTLSPolicy", "shop", "p")


def _engine(*objects: Object) -> Engine:
    return settled(keyed(*objects))[0]


def _explained(key: Key, *more: Object, world: tuple[Object, ...] = WORLD) -> Fact:
    fact = explain(_engine(*world, *more).graph, key)
    assert fact is not None
    return fact


def _without(*kinds: str) -> tuple[Object, ...]:
    return tuple(obj for obj in WORLD if type(obj).__name__ not in kinds)


def _all(fact: Fact) -> Iterator[Fact]:
    yield fact
    for cause in fact.because:
        yield from _all(cause)


def _said(fact: Fact, text: str) -> Fact:
    """Returns the one fact with this text."""
    facts = [inner for inner in _all(fact) if text in inner.text]
    assert facts, "\n".join(inner.text for inner in _all(fact))
    return facts[0]


def test_a_hop_is_tls_because_of_its_policy_verified_against_its_bundle_for_its_name() -> None:
    fact = _explained(ROUTE)
    assert fact.state is FactState.GOOD
    hop = _said(fact, "TLS because of BackendTLSPolicy shop/p")
    assert [cause.text for cause in hop.because] == [
        "sends SNI api.internal",
        "the certificate must be for api.internal",
        "verified against the bundle of ConfigMap shop/corp-ca",
    ]
    assert _said(hop, "CA Corp CA, until 2027-11-15")
    assert _said(fact, "sent to 10.0.0.1:9443")


def test_without_a_policy_a_hop_is_plaintext_and_nothing_is_wrong() -> None:
    fact = _explained(ROUTE, world=_without("BackendTLSPolicy"))
    assert _said(fact, "plaintext: no BackendTLSPolicy targets this port").state is FactState.PLAIN
    assert fact.state is FactState.GOOD


def test_a_refused_hop_names_the_policy_and_what_it_misses() -> None:
    fact = _explained(ROUTE, world=_without("ConfigMap"))
    assert fact.state is FactState.BAD
    hop = _said(fact, "refused: BackendTLSPolicy shop/p is invalid")
    assert hop.because[0].text == "ConfigMap shop/corp-ca does not exist"
    assert hop.because[0].object == Key("ConfigMap", "shop", "corp-ca")


def test_plaintext_mentions_a_policy_that_misses_the_port() -> None:
    missed = mk_policy("shop/p", "api", "api.internal", ["corp-ca"], section="htps")
    fact = _explained(ROUTE, missed, world=_without("BackendTLSPolicy"))
    assert _said(fact, "it names port htps, which the Service does not have").state is FactState.BAD


def test_a_younger_policy_names_the_winner() -> None:
    younger = mk_policy("shop/q", "api", "other.internal", ["corp-ca"], created="2026-02-01T00:00:00Z")
    fact = _explained(Key("BackendTLSPolicy", "shop", "q"), younger)
    assert _said(fact, "is already targeted by BackendTLSPolicy shop/p, which is older").state is FactState.BAD
    assert _said(_explained(ROUTE, younger), "not BackendTLSPolicy shop/q: shop/p has the same target and is older")


def test_a_policy_that_names_the_port_beats_one_for_the_whole_service() -> None:
    section = mk_policy("shop/q", "api", "other.internal", ["corp-ca"], section="https", created="2026-02-01T00:00:00Z")
    fact = _explained(POLICY, section)
    assert _said(fact, "not port https: BackendTLSPolicy shop/q names it")
    assert _said(_explained(ROUTE, section), "TLS because of BackendTLSPolicy shop/q")


def test_a_policy_says_who_reaches_it_and_by_which_route() -> None:
    fact = _explained(POLICY)
    use = _said(fact, "Gateway shop/web, port 443: TLS, must be verified")
    assert [cause.text for cause in use.because] == ["by HTTPRoute shop/r"]
    unreached = _explained(POLICY, world=_without("HTTPRoute"))
    assert _said(unreached, "not used").state is FactState.WARNING


def test_a_route_reports_why_a_gateway_does_not_serve_it() -> None:
    lost = mk_route("shop/lost", "shop/nowhere", [{"name": "api", "port": 443}])
    assert _said(_explained(Key("HTTPRoute", "shop", "lost"), lost), "Gateway shop/nowhere: no effect, it does not exist")
    foreign = mk_gateway("shop/web", gateway_class="nobodys")
    fact = _explained(ROUTE, foreign)
    assert _said(fact, "it has GatewayClass nobodys, which does not exist").state is FactState.WARNING


def test_a_gateway_lists_listeners_routes_and_hops() -> None:
    fact = _explained(Key("Gateway", "shop", "web"))
    listener = _said(fact, "listener http: HTTP port 80, any hostname")
    assert [cause.text for cause in listener.because] == ["HTTPRoute shop/r for shop.example"]
    assert _said(fact, "hop to Service shop/api port 443").state is FactState.GOOD


TEAM = mk_listener_set("team/set", "shop/web", [{"name": "http", "port": 80, "protocol": "HTTP", "hostname": "team.example"}])
OPEN = mk_gateway("shop/web", allowedListeners={"namespaces": {"from": "All"}})


def test_a_listener_set_names_its_gateway_and_the_gateway_lists_it() -> None:
    parents = [{"kind": "ListenerSet", "name": "set", "sectionName": "http"}]
    route = mk_route("team/r", "", [{"name": "api", "namespace": "shop", "port": 443}], parents=parents)
    world = (OPEN, TEAM, route, mk_grant("shop/grant", "team"))
    fact = _explained(Key("ListenerSet", "team", "set"), *world)
    assert fact.state is FactState.GOOD
    assert _said(fact, "accepted by Gateway shop/web")
    listener = _said(fact, "listener http: HTTP port 80, team.example")
    assert [cause.text for cause in listener.because] == ["HTTPRoute team/r for team.example"]
    whole = _explained(Key("Gateway", "shop", "web"), *world)
    assert _said(whole, "ListenerSet team/set").because == fact.because
    routed = _explained(Key("HTTPRoute", "team", "r"), *world)
    assert _said(routed, "ListenerSet team/set: accepted")
    assert _said(routed, "served by listener http (port 80) for team.example")
    assert _said(routed, "TLS because of BackendTLSPolicy shop/p")


def test_a_listener_set_reports_why_it_has_no_effect() -> None:
    assert _said(
        _explained(Key("ListenerSet", "team", "set"), TEAM), "not accepted: allowedListeners of Gateway shop/web does"
    )
    lost = mk_listener_set("team/set", "shop/nowhere", [])
    assert _said(
        _explained(Key("ListenerSet", "team", "set"), lost),
        "no effect: it belongs to Gateway shop/nowhere, which does not exist",
    )
    route = mk_route("team/r", "", [], parents=[{"kind": "ListenerSet", "name": "gone"}])
    assert _said(_explained(Key("HTTPRoute", "team", "r"), route), "ListenerSet team/gone: no effect, it does not exist")


def test_a_secret_knows_the_listener_set_that_shows_it() -> None:
    tls = {"name": "s", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "k0"}]}}
    world = (OPEN, mk_listener_set("team/set", "shop/web", [tls]), mk_secret("team/k0", *key_pair("k0")))
    fact = _explained(Key("Secret", "team", "k0"), *world)
    assert _said(fact, "contains a certificate for listeners of ListenerSet team/set")


def test_a_service_says_who_routes_to_it_under_which_policy() -> None:
    fact = _explained(Key("Service", "shop", "api"))
    assert _said(fact, "from Gateway shop/web by HTTPRoute shop/r: TLS because of BackendTLSPolicy shop/p")


def test_a_config_map_and_a_secret_know_their_users() -> None:
    fact = _explained(Key("ConfigMap", "shop", "corp-ca"))
    assert _said(fact, "gives BackendTLSPolicy shop/p its CAs").object == POLICY
    listener = {"name": "s", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "k0"}]}}
    secret = mk_secret("shop/k0", *key_pair("k0"))
    fact = _explained(Key("Secret", "shop", "k0"), mk_gateway("shop/secure", [listener]), secret)
    assert _said(fact, "contains a certificate for listeners of Gateway shop/secure")
    assert _said(fact, "certificate of k0")
    idle = _explained(Key("ConfigMap", "shop", "idle"), mk_config_map("shop/idle", ca_pem("Idle")))
    assert _said(idle, "nothing uses it").state is FactState.WARNING


def test_a_slice_and_a_grant_know_what_they_are_for() -> None:
    assert _said(_explained(Key("EndpointSlice", "shop", "api-1")), "gives Service shop/api endpoints")
    route = mk_route("team/r", "shop/web", [{"name": "api", "namespace": "shop", "port": 443}])
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
    grant = mk_grant("shop/grant", "team")
    fact = _explained(Key("ReferenceGrant", "shop", "grant"), mk_gateway("shop/web", [listener]), grant, route)
    assert _said(fact, "lets HTTPRoutes of namespace team refer to every Service in shop")
    assert _said(fact, "HTTPRoute team/r uses this grant")


def test_a_mirror_is_a_hop_too() -> None:
    rules = [
        {
            "filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "api", "port": 443}}}],
            "backendRefs": [{"name": "gone", "port": 80}],
        }
    ]
    fact = _explained(ROUTE, mk_route("shop/r", "shop/web", [], rules=rules))
    assert _said(fact, "mirrors to Service shop/api port 443").state is FactState.GOOD
    assert _said(fact, "Service shop/gone port 80: refused").state is FactState.BAD


def test_an_authorization_server_is_a_hop_too() -> None:
    rules = [
        {
            "filters": [mk_external_auth("GRPC", {"name": "api", "port": 443})],
            "backendRefs": [{"name": "gone", "port": 80}],
        }
    ]
    route = mk_route("shop/r", "shop/web", [], rules=rules)
    fact = "authorizes each request by GRPC at Service shop/api port 443"
    assert _said(_explained(ROUTE, route), fact).state is FactState.GOOD
    assert _said(_explained(Key("Gateway", "shop", "web"), route), "hop to Service shop/api port 443").state is FactState.GOOD


def test_explaining_leaves_nothing_behind_in_the_graph() -> None:
    engine = _engine(*WORLD)
    before = set(engine.graph.nodes)
    for obj in keyed(*WORLD):
        explain(engine.graph, obj)
    assert set(engine.graph.nodes) == before


async def test_missing_objects_are_not_explained() -> None:
    assert await step_by_step(tree(_engine(*WORLD).graph, Key("Service", "shop", "nowhere"), lambda key: None)) is None


def test_a_route_of_connections_says_what_is_spoken_on_each_listener_and_who_comes_first() -> None:
    route = [{"name": "api", "port": 443}]
    older = mk_stream_route(
        "TLSRoute", "shop/r", "shop/web", route, ["a.p.example", "a.example"], created="2026-01-01T00:00:00Z"
    )
    newer = mk_stream_route("TLSRoute", "shop/s", "shop/web", route, ["a.example"], "ends", created="2026-02-01T00:00:00Z")
    more = (mk_gateway("shop/web", STREAMS), mk_secret("shop/k0", *key_pair("k0")), older, newer)
    texts = [fact.text for fact in _all(_explained(Key("TLSRoute", "shop", "r"), *more))]
    assert "TLS because of BackendTLSPolicy shop/p" in texts
    assert any(text.startswith("passthrough of the client's own TLS") for text in texts)
    lost = _all(_explained(Key("TLSRoute", "shop", "s"), *more))
    assert any(f.state is FactState.WARNING and f.text == "not for a.example: TLSRoute shop/r takes precedence" for f in lost)
    service = [fact.text for fact in _all(_explained(Key("Service", "shop", "api"), *more))]
    assert any("TLSRoute shop/r, TLSRoute shop/s: TLS because of" in text for text in service)
    assert any("by TLSRoute shop/r: passthrough" in text for text in service)


def test_a_refused_policy_does_not_say_that_anything_is_verified() -> None:
    bad_name = mk_policy("shop/p", "api", "10.0.0.1", ["corp-ca"])
    explanation = _explained(POLICY, bad_name)
    assert not [fact.text for fact in _all(explanation) if "verified against" in fact.text]
    assert _said(explanation, "refers to the bundle of ConfigMap shop/corp-ca").because
    assert not [fact.text for fact in _all(_explained(ROUTE, bad_name)) if "verified against" in fact.text]


def test_a_policy_that_only_passthrough_reaches_is_not_used() -> None:
    world = (*_without("HTTPRoute", "Gateway"), mk_gateway("shop/web", STREAMS[:1]))
    through = mk_stream_route("TLSRoute", "shop/t", "shop/web", [{"name": "api", "port": 443}], ["a.p.example"])
    fact = _explained(POLICY, through, world=world)
    assert _said(fact, "target Service shop/api: not used").state is FactState.WARNING
    assert _said(fact, "only TLS Passthrough uses it")


def test_a_policy_whose_ports_all_have_policies_of_their_own_is_never_used() -> None:
    fact = _explained(POLICY, mk_policy("shop/q", "api", "api.internal", ["corp-ca"], section="https"))
    assert _said(fact, "target Service shop/api: never used").state is FactState.WARNING
    assert _said(fact, "other policies name each port (shop/q)")


def test_a_policy_for_a_missing_service_is_reported_at_the_probable_one() -> None:
    fact = _explained(ROUTE, mk_policy("shop/p", "apii", "api.internal", ["corp-ca"]))
    assert _said(fact, "plaintext: no BackendTLSPolicy targets this port").state is FactState.WARNING
    assert _said(fact, "BackendTLSPolicy shop/p names Service apii, which does not exist; it probably means this one")


def test_equal_ages_are_reported() -> None:
    rival = mk_policy("shop/q", "api", "other.internal", ["corp-ca"], created="2026-01-01T00:00:00Z")
    assert _said(_explained(ROUTE, rival), "shop/p has the same target and is as old and comes first by name")


def test_a_policy_of_gateways_shows_where_it_is_in_effect_and_its_problems() -> None:
    collector = {"name": "api", "port": 443}
    late = mk_telemetry_policy("shop/late", ["web"], collector, created="2026-02-01T00:00:00Z")
    early = mk_telemetry_policy("shop/early", ["web"], collector, created="2026-01-01T00:00:00Z")
    of_early = _explained(Key("XTelemetryPolicy", "shop", "early"), early, late)
    of_late = _explained(Key("XTelemetryPolicy", "shop", "late"), early, late)
    assert _said(of_early, "in effect at Gateway shop/web").state is FactState.GOOD
    assert _said(of_late, "is already targeted by XTelemetryPolicy shop/early, which is older").state is FactState.BAD


def test_a_policy_whose_target_does_not_exist_has_no_effect() -> None:
    lost = mk_traffic_policy("shop/lost", {"group": "", "kind": "Service", "name": "aip"}, retryConstraint={})
    fact = _explained(Key("XBackendTrafficPolicy", "shop", "lost"), lost)
    assert fact.state is FactState.BAD
    assert _said(fact, "spec.targetRefs[0]: Service shop/aip does not exist")
