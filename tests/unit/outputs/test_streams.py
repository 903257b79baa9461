"""Filter chains for connections: changes of their names, replacements of refused ones, and their audit."""

from __future__ import annotations

from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.quarantine import withhold
from lasthop.engine.outputs.envoy.resource import LISTENER, Part, Resource
from tests.snapshot import Snapshot, settle
from tests.summary_streams import listener_lines
from tests.world import (
    NOW,
    STREAMS,
    ca_pem,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_secret,
    mk_service,
    mk_slice,
    mk_stream_route,
    mk_waiver,
    own_ref,
    profile_ref,
)

PORTS = [{"name": "https", "port": 443}, {"name": "udp", "port": 53, "protocol": "UDP"}]
WORLD = (
    mk_class(),
    mk_gateway("a/gw", STREAMS),
    mk_secret("a/k0", *key_pair("k0")),
    mk_service("a/one", PORTS),
    mk_service("a/two", PORTS),
    mk_slice("a/one-1", "one", ["10.0.0.1"]),
    mk_stream_route("TLSRoute", "a/one", "a/gw", [{"name": "one", "port": 443}], ["one.example", "one.p.example"]),
    mk_stream_route("TLSRoute", "a/two", "a/gw", [{"name": "two", "port": 443}], ["two.example"], "ends"),
    mk_stream_route("UDPRoute", "a/one", "a/gw", [{"name": "one", "port": 53}]),
    mk_policy("a/one", "one", "api.example", ["ca"]),
    mk_config_map("a/ca", ca_pem("good")),
)
TLS = "a/gw/8443"


class World:
    def __init__(self) -> None:
        self.engine, self.snapshot = Engine(now=NOW.timestamp()), Snapshot()
        self.put(*WORLD)

    def put(self, *objects: Object) -> None:
        self.engine.apply(keyed(*objects))
        settle(self.engine, self.snapshot)

    @property
    def resource(self) -> Resource:
        return self.snapshot.xds[Key("Gateway", "a", "gw"), LISTENER, TLS]

    def listener(self) -> Any:
        return listener_pb2.Listener.FromString(self.resource.body)

    def chains(self) -> dict[str, str]:
        """Names without and with their hash."""
        return {chain.name.partition("@")[0]: chain.name for chain in self.listener().filter_chains}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_a_policy_renames_the_chains_that_it_has_a_say_in_and_no_other() -> None:
    world = World()
    for edit in (
        mk_policy("a/one", "one", "other.example", ["ca"]),
        mk_config_map("a/ca", ca_pem("rotated")),
        mk_policy("a/one", "one", "other.example", ["missing"]),
        mk_gateway("a/gw", STREAMS, tls={"backend": {"clientCertificateRef": {"name": "k0"}}}),
        mk_policy("a/one", "one", "other.example", ["ca"]),
    ):
        before = world.chains()
        world.put(edit)
        expected = set() if isinstance(edit, type(WORLD[1])) else {"8443/ends/one.example"}
        assert changed(before, world.chains()) == expected, edit


def ages(world: World) -> dict[str, int]:
    """How old connections may become, by chain; 0: as old as they like."""
    durations = {}
    for chain in world.listener().filter_chains:
        proxy = tcp_proxy_pb2.TcpProxy()
        if chain.filters:
            chain.filters[0].typed_config.Unpack(proxy)
        durations[chain.name.partition("@")[0]] = proxy.max_downstream_connection_duration.seconds
    return durations


def test_a_connection_under_a_waiver_that_ends_gets_no_older_than_a_day() -> None:
    """Without a controller nothing else would end it. The limit does not follow the remaining time: the chain stays."""
    world = World()
    chain = "8443/ends/one.example"
    assert set(ages(world).values()) == {0}
    world.put(mk_gateway("a/gw", STREAMS, infrastructure={"parametersRef": profile_ref("f")}))
    world.put(mk_profile("a/f", backendTLS={"waivers": "Allow"}), mk_waiver("a/w", "All"))
    world.put(mk_policy("a/one", "one", "api.example", [own_ref("VerificationWaiver", "w")]))
    assert set(ages(world).values()) == {0}
    world.put(mk_waiver("a/w", "All", "2026-11-20T12:00:00Z"))
    assert {name for name, age in ages(world).items() if age} == {chain}
    assert ages(world)[chain] == 86400
    before = world.resource
    world.engine.advance(NOW.timestamp() + 4 * 86400)
    settle(world.engine, world.snapshot)
    assert world.resource == before


def test_endpoints_and_other_routes_rename_no_chain() -> None:
    world = World()
    before = world.chains()
    world.put(mk_slice("a/one-1", "one", ["10.0.0.2"]))
    world.put(mk_stream_route("TLSRoute", "a/new", "a/gw", [{"name": "two", "port": 443}], ["new.example"], "ends"))
    assert changed(before, world.chains()) == {"8443/ends/new.example"}


def test_a_chain_that_envoy_refused_closes_its_connections_and_leaves_them_to_no_wider_one() -> None:
    world = World()
    part = f"{TLS}#8443/ends/one.example"
    digest = world.resource.parts[part]
    withhold(world.engine.graph, Part(LISTENER, part, digest), "refused")
    settle(world.engine, world.snapshot)
    assert "one.example: closed" in listener_lines(world.listener())
    assert part not in world.resource.parts
    withhold(world.engine.graph, Part(LISTENER, part, digest), None)
    settle(world.engine, world.snapshot)
    assert world.resource.parts[part] == digest


def test_a_listener_goes_out_whole_however_little_is_worked_out_at_a_time() -> None:
    """A name that moves from one listener to another never stands in two chains, which Envoy would refuse."""
    world = World()
    ends = {**STREAMS[1], "hostname": "*.example"}
    moved = {"name": "own", "port": 8443, "protocol": "TLS", "hostname": "one.example", "tls": {"mode": "Passthrough"}}
    world.engine.apply(keyed(mk_gateway("a/gw", [STREAMS[0], ends, moved])))
    while world.engine.unsettled:
        world.snapshot.take(world.engine.settle(1))
        matches = [str(chain.filter_chain_match) for chain in world.listener().filter_chains]
        assert len(matches) == len(set(matches))
    settle(world.engine, world.snapshot)
    assert "one.example: to a/gw/a/one/443/passthrough" in listener_lines(world.listener())


def test_every_hop_is_audited_by_what_is_spoken() -> None:
    world = World()
    audited = {(report.backend.path, report.port, report.manner) for report in world.engine.hops()}
    assert audited == {
        ("a/one", 443, "verified"),
        ("a/one", 443, "passthrough"),
        ("a/one", 53, "udp"),
        ("a/two", 443, "plaintext"),
    }
