"""After any sequence of edits, what was worked out step by step is what a fresh engine works out from the end state."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lasthop.api.kinds import key_of
from lasthop.api.meta import Key, Object
from lasthop.engine import Engine
from lasthop.plan.finding import Finding
from lasthop.plan.tls import SystemStore
from tests.snapshot import Snapshot, settle
from tests.world import (
    CLIENTS,
    HTTP_AND_HTTPS,
    NOW,
    OBJECTS,
    PINS,
    PORTS,
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
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_secret,
    mk_service,
    mk_slice,
    mk_stream_route,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

STORE = SystemStore("/system.pem", "digest")
DELETE = st.sampled_from([False, False, False, True])
EDIT = st.tuples(OBJECTS, DELETE, st.booleans())
"""(object, whether it is deleted, whether anybody looks before the next edit)."""
EDITS = st.lists(EDIT, min_size=1, max_size=20)

_X0 = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x0"}
_BY_C0 = {"hostname": "api.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "c0"}]}
FRONTEND = {"default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": CLIENTS}]}}}
BASE = keyed(
    mk_class(),
    mk_gateway("a/g0"),
    mk_gateway(
        "b/g1",
        [*HTTP_AND_HTTPS, *STREAMS],
        tls={"backend": {"clientCertificateRef": {"name": "k0"}}, "frontend": FRONTEND},
        allowedListeners={"namespaces": {"from": "All"}},
        infrastructure={"parametersRef": profile_ref("f0")},
    ),
    mk_profile("b/f0", backendTLS={"waivers": "Allow"}),
    *(mk_pin_set(f"{ns}/n0", PINS[0]) for ns in "ab"),
    *(mk_waiver(f"{ns}/w0", waives) for ns, waives in (("a", "All"), ("b", "Names"))),
    mk_listener_set("a/l0", "b/g1", [{"name": "one", "port": 8080, "protocol": "HTTP"}]),
    mk_config_map(f"b/{CLIENTS}", ca_pem("clients")),
    mk_secret("b/k0", *key_pair("k0")),
    *(mk_service(f"{ns}/{name}", PORTS) for ns in "ab" for name in ("s0", "s1")),
    *(mk_slice(f"{ns}/{name}-1", name, ["10.0.0.1"]) for ns in "ab" for name in ("s0", "s1")),
    *(mk_config_map(f"{ns}/{name}", ca_pem("good")) for ns in "ab" for name in ("c0", "c1")),
    mk_route("a/r0", "a/g0", [{"name": "s0", "port": 443}, {"name": "s1", "port": 80}, {"name": "s1", "port": 443}]),
    mk_route(
        "b/r0",
        "b/g1",
        [{"name": "s0", "namespace": "a", "port": 443}, {"name": "s1", "port": 443}, {"name": "s0", "port": 443}],
    ),
    mk_route(
        "a/asks",
        "a/g0",
        [],
        ["asks.example"],
        rules=[
            {
                "filters": [mk_external_auth("GRPC", {"name": "s0", "port": 443})],
                "backendRefs": [{"name": "s1", "port": 443}],
            }
        ],
    ),
    mk_route("b/calls", "b/g1", [{"name": "s1", "port": 443}], kind="GRPCRoute"),
    mk_stream_route("TLSRoute", "b/r0", "b/g1", [{"name": "s1", "port": 443}], ["a.p.example", "x.example"]),
    mk_stream_route("TCPRoute", "b/r0", "b/g1", [{"name": "s1", "port": 443}, {"name": "s0", "port": 80}], section="tcp"),
    mk_stream_route("UDPRoute", "b/r0", "b/g1", [{"name": "s1", "port": 53}, {"name": "s0", "port": 53}]),
    mk_route("a/r1", "", [{"name": "s0", "port": 443}], parents=[{"kind": "ListenerSet", "name": "l0"}]),
    mk_route("a/r2", "a/g0", [_X0], ["q.example"]),
    mk_stream_route("TCPRoute", "b/r2", "b/g1", [{**_X0, "namespace": "a"}], section="ends"),
    mk_grant("a/x-grant", "b", "TCPRoute", "XBackend"),
    mk_xbackend("a/x0", "api.example", "ClientAndServer", _BY_C0, tls={"clientCertificateRef": {"name": "k0"}}),
    mk_secret("a/k0", *key_pair("k0")),
    mk_grant("a/grant", "b"),
    mk_policy("a/p0", "s0", "api.example", ["c0"]),
    mk_policy("b/p0", "s1", "api.example", ["c1"], section="https"),
    mk_policy("a/p1", "s1", "api.example", [own_ref("PinSet", "n0")], section="https"),
    mk_policy("b/p1", "s0", "api.example", ["c0", own_ref("VerificationWaiver", "w0")], section="https"),
)
"""A world in which everything works, so that every edit has something to break."""


def key(obj: Object) -> Key:
    return key_of(type(obj).__name__, obj)


def fresh(objects: dict[Key, Object | None], now: float = NOW.timestamp()) -> tuple[Engine, Snapshot]:
    engine, snapshot = Engine(now=now), Snapshot()
    engine.set_system_store(STORE)
    engine.apply(objects)
    settle(engine, snapshot)
    return engine, snapshot


def without_history(engine: Engine) -> list[Finding]:
    """All findings but the one that is about what was before: the only memory that a fresh start does not have."""
    return [finding for finding in engine.findings() if finding.reason != "NoLongerVerified"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(EDITS)
def test_incremental_equals_from_scratch(edits: list[tuple[Object, bool, bool]]) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = fresh(objects)
    for obj, delete, look in edits:
        change = None if delete else obj
        engine.apply({key(obj): change})
        objects[key(obj)] = change
        if look:
            settle(engine, snapshot)
    settle(engine, snapshot)
    other, expected = fresh({k: v for k, v in objects.items() if v is not None})
    assert engine.graph.crashes == other.graph.crashes == {}
    assert snapshot.xds == expected.xds
    assert snapshot.status == expected.status
    assert without_history(engine) == without_history(other)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(EDITS, st.integers(1, 5))
def test_settling_in_slices_comes_to_the_same_end(edits: list[tuple[Object, bool, bool]], limit: int) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = fresh(objects)
    for obj, delete, _ in edits:
        objects[key(obj)] = None if delete else obj
        engine.apply({key(obj): objects[key(obj)]})
        snapshot.take(engine.settle(limit))
    while engine.unsettled:
        snapshot.take(engine.settle(limit))
    settle(engine, snapshot)
    _, expected = fresh({k: v for k, v in objects.items() if v is not None})
    assert snapshot.xds == expected.xds
    assert snapshot.status == expected.status


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(OBJECTS, max_size=15), st.randoms())
def test_the_order_in_which_objects_arrive_does_not_matter(objects: list[Object], random: object) -> None:
    world = {**BASE, **{key(obj): obj for obj in objects}}
    shuffled = list(world.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    engine, snapshot = Engine(now=NOW.timestamp()), Snapshot()
    engine.set_system_store(STORE)
    for name, obj in shuffled:
        engine.apply({name: obj})
        settle(engine, snapshot)
    _, expected = fresh(world)
    assert snapshot.xds == expected.xds
    assert snapshot.status == expected.status


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(EDITS, st.sampled_from([1, 5, 30, 400]))
def test_time_that_passes_is_an_edit_like_any_other(edits: list[tuple[Object, bool, bool]], days: int) -> None:
    objects: dict[Key, Object | None] = dict(BASE)
    engine, snapshot = fresh(objects)
    for obj, delete, _ in edits:
        objects[key(obj)] = None if delete else obj
    engine.apply(objects)
    settle(engine, snapshot)
    later = (NOW + timedelta(days=days)).timestamp()
    engine.advance(later)
    settle(engine, snapshot)
    other, expected = fresh({k: v for k, v in objects.items() if v is not None}, later)
    assert engine.graph.crashes == other.graph.crashes == {}
    assert snapshot.xds == expected.xds
    assert snapshot.status == expected.status
    assert without_history(engine) == without_history(other)


def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    engine, snapshot = fresh(dict(BASE))
    engine.apply(dict.fromkeys(BASE))
    settle(engine, snapshot)
    assert snapshot.xds == {}
    assert snapshot.status == {}
    assert engine.graph._buckets == {}
    assert not [name for name in engine.graph._inputs if name[0] == "had-policy"]
    assert not [node for node in engine.graph._nodes.values() if node.pinned]
