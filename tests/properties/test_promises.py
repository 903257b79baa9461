"""The promises of the design, checked over the final xDS of random worlds, in every state they pass through."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lasthop.base.api.core import Service, ServiceImport
from lasthop.base.api.kinds import MULTICLUSTER_API
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import GatewayProfile
from lasthop.base.api.status import GatewayStatus
from lasthop.engine.outputs.audit.hops import REFUSALS
from lasthop.engine.outputs.envoy.clusters import CLUSTERS
from lasthop.engine.outputs.envoy.resource import ENDPOINTS, LISTENER, ROUTES, SECRET
from lasthop.engine.outputs.explain.explain import explain
from lasthop.engine.plan.upstream import Hop, Protocol
from tests.examples import slow
from tests.properties.gateway_promises import Objects, check_keys
from tests.properties.promises import EXEMPT, check, named_by_policy, walk
from tests.random_world import (
    BESIDE_ROUTES,
    DELETE,
    EDIT,
    EDITS,
    NAMESPACES,
    SERVICES,
    TIMES,
    Edit,
    gateways,
    grants,
    listener_sets,
    policies,
    rejected_policies,
    telemetry_policies,
)
from tests.snapshot import Prepared, Snapshot, settle, settled, tls_context
from tests.summary_routes import ext_authz
from tests.world import (
    CLIENTS,
    NOW,
    PORTS,
    STORE,
    UNREAD,
    import_ref,
    key,
    keyed,
    mk_config_map,
    mk_policy,
    mk_route,
    mk_service_import,
)

_IMPORT = {"group": MULTICLUSTER_API, "kind": "ServiceImport", "name": "s0"}


@slow(150)
@given(EDITS)
def test_no_plaintext_to_a_targeted_port_and_never_a_weaker_check_than_required(edits: list[Edit]) -> None:
    """Further promises about Envoy's whole configuration."""
    objects, engine, snapshot = walk(edits)
    for promise in (
        *(check, private_keys_travel_only_as_secrets, everything_that_is_named_is_there),
        *(connections_go_where_their_listener_may_send_them, no_request_goes_around_the_server_that_its_rule_asks),
        no_request_goes_around_the_servers_that_its_listener_asks,
    ):
        promise(objects, snapshot)
    later = NOW + timedelta(days=10)
    engine.advance(later.timestamp())
    settle(engine, snapshot)
    check(objects, snapshot, later)
    assert engine.graph.crashes == {}


_SOUND = st.builds(
    lambda where, name, service, section, created: mk_policy(
        f"{where}/{name}", service, f"{name}.example", ["c0"], section, created=created
    ),
    NAMESPACES,
    st.sampled_from(["p0", "p1", "p2"]),
    SERVICES,
    st.sampled_from(["", "https"]),
    TIMES,
)
"""Valid policies with different names, which show the one in force."""
CLAIMS = st.lists(
    st.tuples(st.one_of(_SOUND, policies(), rejected_policies()), DELETE, st.just(True)), min_size=1, max_size=20
)
"""Edits of policies only, so that they often meet at the same port, or miss it."""


@slow(60)
@given(CLAIMS)
def test_no_combination_of_policies_at_a_port_serves_anything_weaker(edits: list[Edit]) -> None:
    objects, _, snapshot = walk(edits)
    check(objects, snapshot)


_SIDE = st.lists(
    st.tuples(
        st.one_of(telemetry_policies(), gateways(), listener_sets(), grants(), _SOUND, policies()), DELETE, st.booleans()
    ),
    min_size=1,
    max_size=20,
)
"""Edits of Gateways' telemetry and authorization, and of policies."""


_BESIDE_ROUTES = Prepared(BESIDE_ROUTES, STORE)


@slow(60)
@given(_SIDE)
def test_collectors_and_servers_that_listeners_ask_are_verified_like_every_backend(edits: list[Edit]) -> None:
    objects, _, snapshot = walk(edits, _BESIDE_ROUTES)
    check(objects, snapshot)


def test_the_world_without_routes_has_a_collector_and_an_authorization_server_of_a_listener() -> None:
    _, _, snapshot = walk([], _BESIDE_ROUTES)
    assert {(name, tls_context(cluster) is not None) for (_, name), cluster in snapshot.clusters().items()} == {
        ("b/g1/a/s0/443/h2", True),
        ("b/g1/a/s0/443/auto", True),
    }


@slow(60)
@given(EDITS)
def test_retries_and_ejection_change_nothing_of_how_backends_are_verified(edits: list[Edit]) -> None:
    """For any rules of operators: the same clusters with the same TLS, and routes to the same clusters."""
    objects, engine, snapshot = walk(edits)
    before = _ways(snapshot)
    for retries, ejection in ((0, 0), (10, 3600)):
        for name, obj in objects.items():
            if isinstance(obj, GatewayProfile):
                proxy = replace(obj.spec.proxy, connect_retries=retries, ejection_seconds=ejection)
                engine.apply({name: replace(obj, spec=replace(obj.spec, proxy=proxy))})
        settle(engine, snapshot)
        assert _ways(snapshot) == before


def _ways(snapshot: Snapshot) -> Any:
    """Returns the TLS of clusters, and the clusters of each route."""
    sockets = {name: cluster.transport_socket for name, cluster in snapshot.clusters().items()}
    routes = {}
    for name, resource in snapshot.xds.items():
        if name[1] == ROUTES:
            routes[name] = route_pb2.RouteConfiguration.FromString(resource.body)
            for host in routes[name].virtual_hosts:
                host.ClearField("retry_policy")
    return sockets, routes


def private_keys_travel_only_as_secrets(objects: Objects, snapshot: Snapshot) -> None:
    """And only to Gateways that name them."""
    check_keys(objects, snapshot)
    for (_, type_url, _), resource in snapshot.xds.items():
        if type_url != SECRET:
            assert b"PRIVATE KEY" not in resource.body
    for status in snapshot.status.values():
        assert "PRIVATE KEY" not in repr(status)


def everything_that_is_named_is_there(_objects: Objects, snapshot: Snapshot) -> None:
    """Clusters have their endpoints, and listeners their route tables."""
    names: dict[tuple[Key, str], set[str]] = {}
    for gateway, type_url, name in snapshot.xds:
        names.setdefault((gateway, type_url), set()).add(name)
    for (gateway, _), cluster in snapshot.clusters().items():
        if cluster.HasField("load_assignment"):
            continue  # a name, which the proxy resolves itself
        assert cluster.eds_cluster_config.service_name in names[gateway, ENDPOINTS]
    for (gateway, type_url, _), resource in snapshot.xds.items():
        for chain in listener_pb2.Listener.FromString(resource.body).filter_chains if type_url == LISTENER else ():
            manager = hcm_pb2.HttpConnectionManager()
            for config in (filter.typed_config for filter in chain.filters if filter.typed_config.Is(manager.DESCRIPTOR)):
                assert config.Unpack(manager)
                assert manager.rds.route_config_name in names[gateway, ROUTES], "a listener without its route table"


_MATTERS = st.builds(
    lambda where, section: mk_policy(f"{where[0]}/p9", where[1], "api.example", ["c0"], section),
    st.sampled_from([("a", "s1"), ("b", "s0")]),
    st.sampled_from(["", "plain"]),
)
"""A policy for one of the ports that are plaintext in the base world."""
_IMPORTED = st.sampled_from(
    [
        mk_service_import("b/s0", PORTS),
        mk_route("b/near", "b/g1", [import_ref("s0", 80)], ["near.example"]),
        mk_policy("b/p8", "s0", "api.example", ["c0"], "plain", targets=[{**_IMPORT, "sectionName": "plain"}]),
    ]
)
"""A ServiceImport, the way to a port of it, and a policy for that port."""
_EDIT = st.one_of(st.tuples(_MATTERS | _IMPORTED, st.booleans(), st.booleans()), EDIT)
EPISODES = st.lists(st.tuples(st.booleans(), st.lists(_EDIT, max_size=4)), min_size=3, max_size=8)
"""(whether every policy is known, edits in the meantime): unreadable input comes and goes."""


@slow(50)
@given(EPISODES)
def test_nothing_becomes_plaintext_while_not_every_policy_is_known(
    episodes: list[tuple[bool, list[Edit]]],
) -> None:
    """Only ports that were plaintext when the episode began, without interruption since, are plaintext during it; and all of
    them still are. An episode has no effect on the next."""
    objects, engine, snapshot = walk([])
    frozen: set[tuple[str, ...]] | None = None
    for known, edits in episodes:
        engine.policies.set_unknown(() if known else UNREAD)
        if known:
            frozen = None
        elif frozen is None:
            frozen = _plaintext_ports(snapshot) - _named_ports(objects)
        for obj, delete, look in edits:
            engine.apply({key(obj): None if delete else obj})
            objects.pop(key(obj), None)
            if not delete:
                objects[key(obj)] = obj
            if frozen is not None:
                frozen -= _named_ports(objects)
            if look:
                settle(engine, snapshot)
                check(objects, snapshot)
                assert frozen is None or _plaintext_ports(snapshot) <= frozen
                if frozen is not None:  # an interruption ends it
                    frozen = _plaintext_ports(snapshot)
        if not known:
            settle(engine, snapshot)
            _check_frozen(objects, snapshot, frozen)
    engine.policies.set_unknown(())
    settle(engine, snapshot)
    _check_frozen(objects, snapshot, None)


def _check_frozen(objects: Objects, snapshot: Snapshot, frozen: set[tuple[str, ...]] | None) -> None:
    _, expected = settled(objects, store=STORE)
    plaintext = _plaintext_ports(expected)
    assert _plaintext_ports(snapshot) == (plaintext if frozen is None else plaintext & frozen)


def _named_ports(objects: Objects) -> set[tuple[str, ...]]:
    """Returns (namespace, Service, port) of all targets of policies, valid or not; with the kind, if it is not Service."""
    return {
        (*(() if name.kind == "Service" else (name.kind,)), name.namespace, name.name, str(port.port))
        for name, obj in objects.items()
        if isinstance(obj, Service | ServiceImport)
        for port in obj.spec.ports
        if port.protocol == "TCP" and named_by_policy(objects, name, port.name)
    }


def _plaintext_ports(snapshot: Snapshot) -> set[tuple[str, ...]]:
    return {port for port, _ in _plaintext(snapshot)}


def _plaintext(snapshot: Snapshot) -> set[tuple[tuple[str, ...], str]]:
    """Returns the plaintext Service ports that a policy could target; policies cannot target an XBackend."""
    names = [
        name.rpartition("/")
        for (_, name), c in snapshot.clusters().items()
        if tls_context(c) is None and "/XBackend/" not in name
    ]
    return {(tuple(hop.split("/")[2:]), protocol) for hop, _, protocol in names if protocol not in EXEMPT}


def _routes_and_listeners(snapshot: Snapshot) -> dict[Any, bytes]:
    """Returns routes and listeners without the hash in chain names, which only identifies the TLS settings behind them."""
    configs = {}
    for name, resource in snapshot.xds.items():
        if name[1] == ROUTES:
            configs[name] = resource.body
        elif name[1] == LISTENER:
            listener = listener_pb2.Listener.FromString(resource.body)
            for chain in listener.filter_chains:
                chain.name = chain.name.partition("@")[0]
            configs[name] = listener.SerializeToString(deterministic=True)
    return configs


BEHIND_THE_NAME = frozenset(
    ("BackendTLSPolicy", "ConfigMap", "EndpointSlice", "ClusterTrustBundle", "PinSet", "VerificationWaiver")
)


@slow(150)
@given(EDITS)
def test_a_policy_or_ca_or_endpoint_edit_changes_neither_routes_nor_listeners(edits: list[Edit]) -> None:
    """Policies only decide what a stable cluster name means (docs/internals.md#names-that-never-change)."""
    _, engine, snapshot = walk([])
    for obj, delete, _ in edits:
        before = _routes_and_listeners(snapshot)
        engine.apply({key(obj): None if delete else obj})
        settle(engine, snapshot)
        after = _routes_and_listeners(snapshot)
        if key(obj).kind in BEHIND_THE_NAME and obj.metadata.name != CLIENTS:
            assert before == after


def connections_go_where_their_listener_may_send_them(_objects: Objects, snapshot: Snapshot) -> None:
    """Only a passthrough chain names hops that are exempt from policies, and no two chains of a port match the same, for
    which Envoy would refuse the whole port."""
    for (_, type_url, _), resource in snapshot.xds.items():
        if type_url != LISTENER:
            continue
        listener = listener_pb2.Listener.FromString(resource.body)
        matches = [chain.filter_chain_match.SerializeToString(deterministic=True) for chain in listener.filter_chains]
        assert len(set(matches)) == len(matches)
        tcp = listener.address.socket_address.protocol == address_pb2.SocketAddress.TCP
        assert bool(listener.filter_chains) == tcp
        for chain in listener.filter_chains:
            tls_without_end = chain.filter_chain_match.transport_protocol == "tls" and not chain.HasField("transport_socket")
            for cluster in _clusters(chain):
                protocol = cluster.rpartition("/")[2]
                assert protocol == "refused" or protocol == ("passthrough" if tls_without_end else "tcp")


def no_request_goes_around_the_server_that_its_rule_asks(objects: Objects, snapshot: Snapshot) -> int:
    """For any state of the server, its policy or its grant: a route queries it, and fails without a decision, or answers 500.
    Returns the number of routes with a server. The rules of a route of a random world all ask the same."""
    asking = 0
    for (gateway, type_url, _), resource in snapshot.xds.items():
        hosts = route_pb2.RouteConfiguration.FromString(resource.body).virtual_hosts if type_url == ROUTES else ()
        for route in (route for host in hosts for route in host.routes):
            kind, _, path = route.name.partition(" ")
            obj: Any = objects.get(Key(kind, *path.split("/"))) if path else None
            filters = obj.spec.rules[0].filters if obj else ()
            wanted = next((f.external_auth for f in filters if f.external_auth), None)
            if wanted is None or route.HasField("direct_response"):
                assert wanted is None or route.direct_response.status == 500
                continue
            auth = _asked(route)
            assert _wanted(gateway, obj, wanted) in _named(auth)
            assert not auth.failure_mode_allow and not auth.clear_route_cache
            asking += 1
    return asking


def _asked(message: Any, filter: str = "lasthop.external_auth") -> Any:
    config, per_route = route_components_pb2.FilterConfig(), extension_matcher_pb2.ExtensionWithMatcherPerRoute()
    assert message.typed_per_filter_config[filter].Unpack(config) and not config.disabled
    assert config.config.Unpack(per_route)
    return ext_authz(per_route)


def _wanted(gateway: Key, owner: Any, auth: Any) -> str:
    """The cluster of the server that an object's filter refers to."""
    ref, protocol = auth.backend_ref, {"HTTP": "auto", "GRPC": "h2"}[auth.protocol]
    kind = f"{ref.kind}/" if ref.kind != "Service" else ""
    return f"{gateway.path}/{kind}{ref.namespace or owner.metadata.namespace}/{ref.name}/{ref.port}/{protocol}"


def _named(filter: Any) -> tuple[str, str]:
    return filter.http_service.server_uri.cluster, filter.grpc_service.envoy_grpc.cluster_name


def no_request_goes_around_the_servers_that_its_listener_asks(objects: Objects, snapshot: Snapshot) -> None:
    """Every virtual host queries the servers of the listener with the most specific hostname, in order, and no servers of
    other listeners. Each server fails closed, and the route is chosen again, with all its own filters."""
    for (gateway, type_url, name), resource in snapshot.xds.items():
        table = name.removeprefix(f"{gateway.path}/").split("/")
        for host in route_pb2.RouteConfiguration.FromString(resource.body).virtual_hosts if type_url == ROUTES else ():
            possible = _possible_servers(objects, gateway, table, host.domains[0])
            filters = sorted(filter for filter in host.typed_per_filter_config if filter.startswith("lasthop.listener_auth"))
            auths = [_asked(host, filter) for filter in filters]
            assert all(not server.failure_mode_allow and server.clear_route_cache for server in auths)
            servers = tuple(next(filter(None, _named(server))) for server in auths)
            forwards = any(route.HasField("route") for route in host.routes)
            assert servers in possible or (not servers and not forwards), (name, host.name)
            routes_on = {"envoy.filters.http.cors", "lasthop.external_auth", "envoy.filters.http.stateful_session"}
            assert not servers or routes_on <= {*host.typed_per_filter_config}
            assert not servers or host.routes[-1].match.prefix == "/", "requests without a route are authorized too"


def _possible_servers(objects: Objects, gateway: Key, table: list[str], domain: str) -> list[tuple[str, ...]]:
    """Returns the authorization servers of the listeners with the most specific hostname for a domain; several sets if
    listeners conflict."""
    hostname = "" if domain == "*" else domain
    sets = [obj for key, obj in sorted(objects.items()) if key.kind == "ListenerSet"]
    owners: list[Any] = [objects[gateway], *sets]
    port, *named = table
    candidates = [
        (listener, owner)
        for owner in owners
        for listener in owner.spec.listeners
        if listener.port == int(port) and listener.protocol == ("HTTPS" if named else "HTTP")
        if not named or listener.name == named[-1]
        if listener.hostname in ("", hostname) or hostname.endswith(listener.hostname.removeprefix("*"))
    ]
    longest = max((len(listener.hostname) for listener, _ in candidates), default=0)
    fitting = [(listener, owner) for listener, owner in candidates if named or len(listener.hostname) == longest]
    return [
        tuple(_wanted(gateway, owner, filter.external_auth) for filter in listener.filters.requests if filter.external_auth)
        for listener, owner in fitting
    ]


def _clusters(chain: Any) -> list[str]:
    proxy = tcp_proxy_pb2.TcpProxy()
    configs = [filter.typed_config for filter in chain.filters if filter.typed_config.Is(proxy.DESCRIPTOR)]
    for config in configs:
        assert config.Unpack(proxy)
        return [proxy.cluster] if proxy.cluster else [c.name for c in proxy.weighted_clusters.clusters]
    return []


@slow(40)
@given(EDITS)
def test_every_object_can_be_explained(edits: list[Edit]) -> None:
    objects, engine, _ = walk(edits)
    for obj_key in objects:
        assert explain(engine.graph, obj_key) is not None


MANNERS = {"Plaintext": "plaintext", "Passthrough": "passthrough", "Udp": "udp", "FailingClosed": "nothing"}


@slow(60)
@given(EDITS)
def test_the_audit_matches_envoys_configuration(edits: list[Edit]) -> None:
    _, engine, snapshot = walk(edits)
    clusters = {name: cluster for (_, name), cluster in snapshot.clusters().items()}
    programmed = {
        key.path
        for key, status in snapshot.status.items()
        if isinstance(status, GatewayStatus) and any(c.type == "Programmed" and c.status == "True" for c in status.conditions)
    }
    has = set()
    for hop in (Hop(*member) for member in engine.stages.members(CLUSTERS)):
        # No client reaches the backends of a Gateway that serves nothing.
        hop_cluster = clusters.get(hop.name) if hop.gateway.path in programmed else None
        spoken = hop.protocol.value if hop.protocol.value in EXEMPT else "plaintext"
        manner = "nothing" if hop_cluster is None else "TLS" if tls_context(hop_cluster) else spoken
        has.add((hop.gateway.path, hop.backend.path, hop.port, manner))
    # References without a ReferenceGrant have no cluster.
    has |= {(gateway.path, to.path, port, "nothing") for gateway, to, port in engine.stages.members(REFUSALS)}
    assert {(r.gateway.path, r.backend.path, r.port, MANNERS.get(r.mode, "TLS")) for r in engine.hops()} == has
    assert {r.gateway.path for r in engine.hops() if r.waives} == {
        key.path
        for key, status in snapshot.status.items()
        if isinstance(status, GatewayStatus)
        and key.path in programmed
        and any(c.type == "InsecureBackendVerification" for c in status.conditions)
    }


def test_the_world_is_rich_enough_to_mean_something() -> None:
    """The base world has hops of every manner; a policy that loses its CA loses its cluster, and only it."""
    objects, engine, snapshot = walk([])
    assert no_request_goes_around_the_server_that_its_rule_asks(objects, snapshot)
    assert {(hop.gateway.path, hop.backend.path, hop.port, hop.mode) for hop in engine.hops()} == {
        ("a/g0", "a/s0", 443, "Verified"),
        ("a/g0", "a/s1", 80, "Plaintext"),
        ("a/g0", "a/s1", 443, "PinnedOnly"),
        ("a/g0", "a/x0", 443, "Verified"),
        ("b/g1", "a/s0", 443, "Verified"),
        ("b/g1", "a/x0", 443, "Verified"),
        ("b/g1", "b/s0", 443, "WaivedNames"),
        ("b/g1", "b/s0", 80, "Plaintext"),
        ("b/g1", "b/s0", 53, "Udp"),
        ("b/g1", "b/s1", 443, "Verified"),
        ("b/g1", "b/s1", 443, "Passthrough"),
        ("b/g1", "b/s1", 53, "Udp"),
    }
    before = {name for _, name in snapshot.clusters()}
    assert {name.rpartition("/")[2] for name in before} == {protocol.value for protocol in Protocol}
    engine.apply(keyed(mk_config_map("a/c0", "")))
    settle(engine, snapshot)
    assert {name for _, name in snapshot.clusters()} == {
        name for name in before if ("/a/s0/" not in name or "/ServiceImport/" in name) and "/a/x0/" not in name
    }
