"""The ports that may be plaintext while policies are unknown."""

from __future__ import annotations

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, Resource, Withdrawal
from lasthop.engine.plan.knowledge import Unknown, by_namespace
from lasthop.engine.plan.reasons import POLICIES_UNKNOWN
from lasthop.engine.plan.tls import Plaintext, Refused
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.hops import hops
from lasthop.engine.resolve.hops.hops import hop_tls
from tests.snapshot import settle, settled, tls_context
from tests.world import STORE, keyed, mk_class, mk_gateway, mk_policy, mk_route, mk_service

UNREADABLE = Unknown(provable=False, namespace="", why="x.yaml:1 cannot be fully read", remedy="correct that file")
UNLISTED = Unknown(provable=True, namespace="", why="not listed since it appeared")
PORTS = [{"name": "plain", "port": 80}]
S, GATEWAY = Key("Service", "a", "s"), Key("Gateway", "a", "g")
SERVICE, POLICY = mk_service("a/s", PORTS), mk_policy("a/p", "s", "s.example")
ROUTE = mk_route("a/r", "a/g", [{"name": "s", "port": 80}])


class World:
    """A Gateway and a route to port 80 of Service a/s."""

    def __init__(self) -> None:
        self.engine, self.snapshot = settled(keyed(mk_class(), mk_gateway("a/g"), SERVICE, ROUTE), store=STORE)
        self.policies = self.engine.policies

    def put(self, *objects: Object) -> str:
        self.engine.apply(keyed(*objects))
        return self.served

    def drop(self, *objects: Object) -> str:
        self.engine.apply(dict.fromkeys(keyed(*objects)))
        return self.served

    def know(self, *unknown: Unknown) -> str:
        self.policies.set_unknown(unknown)
        return self.served

    def prove(self) -> str:
        self.policies.proven(self.policies.awaiting())
        return self.served

    @property
    def served(self) -> str:
        settle(self.engine, self.snapshot)
        clusters = [cluster for (_, name), cluster in self.snapshot.clusters().items() if "a/s" in name]
        return "closed" if not clusters else "TLS" if tls_context(clusters[0]) else "plaintext"


@pytest.fixture
def world() -> World:
    return World()


def test_a_port_that_was_plaintext_before_stays_so(world: World) -> None:
    assert world.know(UNREADABLE) == "plaintext"


@pytest.mark.parametrize("thing", [ROUTE, SERVICE, mk_gateway("a/g")], ids=["route", "service", "gateway"])
def test_an_interruption_ends_that(world: World, thing: Object) -> None:
    world.know(UNREADABLE)
    assert world.drop(thing) == "closed"
    assert world.put(thing) == "closed"
    assert world.know() == "plaintext"


def test_a_policy_ends_that_even_if_it_goes_before_anything_is_settled(world: World) -> None:
    world.know(UNREADABLE)
    world.engine.apply(keyed(POLICY))
    world.engine.apply(dict.fromkeys(keyed(POLICY)))
    assert world.served == "closed"


def test_a_policy_that_is_not_settled_yet_counts_when_policies_become_unknown(world: World) -> None:
    world.engine.apply(keyed(POLICY))
    world.policies.set_unknown([UNREADABLE])
    world.engine.apply(dict.fromkeys(keyed(POLICY)))
    assert world.served == "closed"


def test_a_bug_does_not_count_as_no_policy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown whether a policy named the port, so the port does not stay plaintext."""

    def crash(*args: object) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(hops, "port_winner", crash)
        world.engine.apply(keyed(mk_service("a/s", [*PORTS, {"name": "more", "port": 81}])))
        world.policies.set_unknown([UNREADABLE])
    world.engine.apply(keyed(SERVICE))
    assert world.served == "closed"


def test_the_second_episode_remembers_nothing_of_the_first(world: World) -> None:
    world.know(UNREADABLE)
    world.know()
    assert world.policies.marks == {}
    assert world.put(POLICY) == "TLS"
    world.know(UNREADABLE)
    assert world.drop(POLICY) == "closed"


def test_an_unknown_namespace_concerns_no_other(world: World) -> None:
    world.drop(ROUTE)
    world.know(Unknown(provable=False, namespace="b", why="x"))
    assert world.put(ROUTE) == "plaintext"
    world.drop(ROUTE)
    world.know(Unknown(provable=False, namespace="a", why="x"))
    assert world.put(ROUTE) == "closed"


def test_the_hop_has_the_reason_and_the_remedy(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNREADABLE)
    world.put(ROUTE)
    tls = hop_tls(world.engine.graph, GATEWAY, S, 80, Protocol.AUTO)
    assert isinstance(tls, Refused) and tls.why.reason == POLICIES_UNKNOWN
    assert "x.yaml:1 cannot be fully read" in tls.problem.text and "correct that file" in tls.problem.text


# --- proofs ----------------------------------------------------------------------------------------------------------


def test_a_new_port_waits_for_a_proof(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNLISTED)
    assert world.put(ROUTE) == "closed"
    assert list(world.policies.awaiting()) == [(S, 80)]
    assert world.prove() == "plaintext"
    assert world.policies.awaiting() == {}


def test_a_port_that_loses_its_policy_waits_for_a_new_proof(world: World) -> None:
    world.know(UNLISTED)
    assert world.put(POLICY) == "TLS"
    assert world.drop(POLICY) == "closed"
    assert world.prove() == "plaintext"


def test_a_proof_counts_only_for_the_occasion_that_it_was_requested_for(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNLISTED)
    world.put(ROUTE)
    requested = world.policies.awaiting()
    world.put(POLICY)
    world.drop(POLICY)
    world.policies.proven(requested)
    assert world.served == "closed"
    assert world.prove() == "plaintext"


def test_unprovable_input_is_not_proven(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNLISTED)
    world.put(ROUTE)
    requested = world.policies.awaiting()
    assert world.know(UNLISTED, Unknown(provable=False, namespace="a", why="policy a/q cannot be decoded")) == "closed"
    assert world.policies.awaiting() == {}
    world.policies.proven(requested)
    assert world.served == "closed"
    assert world.know(UNLISTED) == "closed"
    assert world.prove() == "plaintext"


def test_a_proven_port_stays_plaintext_whatever_becomes_unknown_later(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNLISTED)
    world.put(ROUTE)
    world.prove()
    assert world.know(UNLISTED, UNREADABLE) == "plaintext"
    assert world.know(Unknown(provable=True, namespace="", why="403")) == "plaintext"


def test_the_unprovable_reason_decides_and_the_others_are_counted() -> None:
    unknowns = by_namespace([UNLISTED, UNREADABLE, UNREADABLE, Unknown(provable=True, namespace="a", why="y")])
    assert unknowns[""].why == "x.yaml:1 cannot be fully read (and 1 more)" and not unknowns[""].provable
    assert unknowns["a"].why == "y"


@pytest.mark.parametrize(
    ("before", "overdue", "sent"),
    [
        ("verified", None, True),  # without waiting for proofs it is closed at once
        ("verified", (), False),
        ("verified", ((S, 80),), True),
        ("plaintext", (), True),  # a policy came and went: plaintext must not go on without a proof
    ],
)
def test_what_is_sent_while_a_port_waits_for_a_proof(
    world: World, before: str, overdue: tuple[tuple[Key, int], ...] | None, sent: bool
) -> None:
    world.know(UNLISTED)
    world.put(*([POLICY] if before == "verified" else []))
    world.engine.apply(keyed(POLICY))
    world.engine.apply(dict.fromkeys(keyed(POLICY)))
    changes = world.engine.settle(overdue=overdue).xds.get(GATEWAY, {})
    assert [change for name, change in changes.get(CLUSTER, {}).items() if "a/s" in name] == [Withdrawal(urgent=True)] * sent
    assert any("a/s" in name for name in changes.get(ENDPOINTS, {})) is sent
    later = world.engine.settle(overdue=((S, 80),)).xds.get(GATEWAY, {})
    assert bool(later.get(CLUSTER)) is bool(later.get(ENDPOINTS)) is not sent


def test_a_waiting_cluster_is_replaced_after_the_proof(world: World) -> None:
    world.know(UNLISTED)
    world.put(POLICY)
    world.engine.apply(dict.fromkeys(keyed(POLICY)))
    assert not world.engine.settle(overdue=()).xds
    world.policies.proven(world.policies.awaiting())
    changes = world.engine.settle(overdue=()).xds[GATEWAY]
    assert [isinstance(change, Resource) for change in changes[CLUSTER].values()] == [True]
    assert sorted(isinstance(change, Resource) for change in changes[ENDPOINTS].values()) == [False, True]
    assert not world.engine.settle(overdue=((S, 80),)).xds


def test_a_proof_for_a_port_that_a_policy_names_by_now_is_void(world: World) -> None:
    world.know(UNLISTED)
    world.put(POLICY)
    assert world.drop(POLICY) == "closed"
    proofs = world.policies.awaiting()
    world.engine.apply(keyed(POLICY))
    world.policies.proven(proofs)
    assert world.drop(POLICY) == "closed"
    assert world.prove() == "plaintext"


def test_a_route_that_is_not_attached_needs_no_proof(world: World) -> None:
    """Its ResolvedRefs is about its references. As soon as it is attached, its hop waits."""
    world.drop(ROUTE)
    world.know(UNLISTED)
    elsewhere = mk_route("a/r", "a/g", [{"name": "s", "port": 80}], parents=[{"name": "g", "sectionName": "none"}])
    assert world.put(elsewhere) == "closed"
    assert isinstance(hop_tls(world.engine.graph, GATEWAY, S, 80, Protocol.AUTO), Plaintext)
    assert world.policies.awaiting() == {}
    world.drop(elsewhere)
    assert world.put(ROUTE) == "closed"
    assert list(world.policies.awaiting()) == [(S, 80)]


def test_unprovable_input_concerns_references_of_every_route(world: World) -> None:
    world.drop(ROUTE)
    world.know(UNREADABLE)
    assert isinstance(hop_tls(world.engine.graph, GATEWAY, S, 80, Protocol.AUTO), Refused)
