"""ServiceImports without their CRD on the API server: the kind is unknown, and nothing else changes."""

from __future__ import annotations

import pytest

from lasthop.base.api.kinds import MULTICLUSTER_API
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import PolicyTargetReference
from lasthop.engine.plan.tls import BackendTLS, Plaintext
from lasthop.engine.plan.upstream import EndpointAddress, Hop, Protocol
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.conditions import target_problem
from lasthop.engine.resolve.policies.targets import service_of
from lasthop.engine.resolve.settings import set_absent
from tests.snapshot import settle, settled
from tests.world import (
    STORE,
    ca_pem,
    import_ref,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_service,
    mk_service_import,
    mk_slice,
)

TARGET = {"group": MULTICLUSTER_API, "kind": "ServiceImport", "name": "far"}
GATEWAY, POLICY = Key("Gateway", "a", "g"), Key("BackendTLSPolicy", "a", "p")
HOP = Hop(GATEWAY, Key("ServiceImport", "a", "far"), 443, Protocol.AUTO)
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_config_map("a/ca", ca_pem("good")),
    mk_service_import("a/far"),
    mk_slice("a/far-1", "far", ["10.0.0.1"], imported=True),
    mk_route("a/r", "a/g", [import_ref("far")]),
)
GUARDED = {**WORLD, **keyed(mk_policy("a/p", "", "far.example", ["ca"], targets=[TARGET]))}


def test_without_the_crd_references_are_of_an_unknown_kind_and_come_to_life_with_it() -> None:
    engine, snapshot = settled(GUARDED, store=STORE)
    assert HOP.name in {name for _, name in snapshot.clusters()}
    set_absent(engine.graph, {"ServiceImport"})
    settle(engine, snapshot)
    assert snapshot.clusters() == {}
    problem = target_problem(engine.graph, POLICY, PolicyTargetReference(MULTICLUSTER_API, "ServiceImport", "far"))
    assert problem and "is not supported" in problem.message
    set_absent(engine.graph, set())
    settle(engine, snapshot)
    assert isinstance(hop_tls(engine.graph, *HOP), BackendTLS)


def test_a_policy_for_the_service_of_the_same_name_is_not_one_for_the_import() -> None:
    engine, _ = settled({**WORLD, **keyed(mk_policy("a/p", "far", "far.example", ["ca"]))}, store=STORE)
    assert isinstance(hop_tls(engine.graph, *HOP), Plaintext)
    engine.apply(keyed(mk_policy("a/p", "", "far.example", ["ca"], targets=[TARGET])))
    engine.settle()
    assert isinstance(hop_tls(engine.graph, *HOP), BackendTLS)


def test_a_slice_may_belong_to_a_service_and_an_import() -> None:
    labels = {"kubernetes.io/service-name": "derived", "multicluster.kubernetes.io/service-name": "far"}
    ports = [{"name": "https", "port": 1}]
    both = mk("EndpointSlice", "a/far-1", labels=labels, endpoints=[{"addresses": ["10.0.0.7"]}], ports=ports)
    engine, _ = settled({**WORLD, **keyed(both, mk_service("a/derived"))}, store=STORE)
    for backend in (Key("Service", "a", "derived"), Key("ServiceImport", "a", "far")):
        assert endpoints(engine.graph, backend, 443, "TCP").endpoints == (EndpointAddress("10.0.0.7", 1),)


@pytest.mark.parametrize("group", ["", "core", "example.com"])
def test_the_group_of_a_target_counts(group: str) -> None:
    assert service_of(POLICY, PolicyTargetReference(group, "ServiceImport", "far")) is None


@pytest.mark.parametrize("port", [0, -1, 65536, 5_000_000_000])
def test_an_unvalidated_port_is_not_an_endpoint(port: int) -> None:
    engine, _ = settled({**WORLD, **keyed(mk_slice("a/far-1", "far", ["10.0.0.1"], port, imported=True))}, store=STORE)
    assert endpoints(engine.graph, HOP.backend, 443, "TCP").endpoints == ()
    assert engine.graph.crashes == {}
