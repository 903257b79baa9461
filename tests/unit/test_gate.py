"""The gate: every edit from one way to verify a backend to another, as `check --against`, the webhook and the record judge it.

Two Gateways reach the backend over three protocols; the expected answers come from an order that is written down here.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import msgspec
import pytest

from lasthop.base.api.meta import Key, Object, StringMap
from lasthop.engine.dry_run import serve_all
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.comparison import ComparedState, HopChange, compare
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import ChangeKind
from lasthop.engine.resolve.backends.reach import PORTS
from lasthop.engine.resolve.hops import verdict as module
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies import targets
from lasthop.engine.resolve.settings import IN_CLUSTER
from lasthop.engine.store.graph import Graph
from lasthop.engine.what_if import Consequences, Rehearsal
from tests.snapshot import Snapshot, settle, settled
from tests.world import (
    NOW,
    ca_pem,
    crl_pem,
    key,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_secret,
    mk_service,
    mk_stream_route,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

T = TypeVar("T")
POLICY = Key("BackendTLSPolicy", "a", "p")
SERVICE = Key("Service", "a", "backend")
GATEWAYS = [Key("Gateway", "a", "g"), Key("Gateway", "a", "h")]
PIN, OTHER_PIN = "A" * 43 + "=", "B" * 42 + "A="
LISTENERS = [{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "tcp", "port": 9000, "protocol": "TCP"}]
PARENTS = [{"name": "g"}, {"name": "h"}]
BACKEND = [{"name": "backend", "port": 443}]
RULES: dict[str, Any] = {"backendTLS": {"waivers": "Allow"}, "admission": {"refuse": ["WeakerVerification"]}}


def gateways(*listeners: dict[str, Any], profile: str = "f", other: str = "") -> list[Object]:
    chosen = {"g": profile, "h": other or profile}
    return [
        mk_gateway(f"a/{name}", list(listeners) or LISTENERS, infrastructure={"parametersRef": profile_ref(rules)})
        for name, rules in chosen.items()
    ]


WORLD = keyed(
    mk_class(),
    mk_profile("a/f", **RULES),
    *gateways(),
    mk_service("a/backend"),
    mk_route("a/web", "", BACKEND, ["web.example"], parents=PARENTS),
    mk_route("a/calls", "", BACKEND, ["calls.example"], parents=PARENTS, kind="GRPCRoute"),
    mk_stream_route("TCPRoute", "a/stream", "a/g", BACKEND, section="tcp"),
    mk_config_map("a/c", ca_pem("good")),
    mk_pin_set("a/pins", PIN),
    *(mk_waiver(f"a/{waives.lower()}", waives) for waives in ("All", "Names", "Expiry")),
)


def mk_state(*refs: Any) -> Object:
    return mk_policy("a/p", "backend", "api.example", list(refs))


def waiver(name: str) -> dict[str, str]:
    return own_ref("VerificationWaiver", name)


STATES: dict[str, Object | None] = {
    "plaintext": None,
    "all waived": mk_state(waiver("all")),
    "names waived": mk_state(waiver("names"), "c"),
    "dates waived": mk_state(waiver("expiry"), "c"),
    "pinned only": mk_state(own_ref("PinSet", "pins")),
    "verified": mk_state("c"),
}
"""The weakest first."""
RANK = list(STATES)
CLOSED = mk_state("nowhere")
PAIRS = list(itertools.product(STATES, STATES))
DOWN = [(strong, weak) for weak, strong in itertools.combinations(RANK, 2)]


def expected(before: str, after: str) -> ChangeKind:
    step = RANK.index(after) - RANK.index(before)
    return ChangeKind.WEAKER if step < 0 else ChangeKind.STRONGER if step else ChangeKind.SAME


def world(policy: Object | None, *more: Object) -> dict[Key, Object | None]:
    return {**WORLD, POLICY: policy, **keyed(*more)}


def done(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome


def state(objects: dict[Key, Object | None]) -> ComparedState:
    engine = Engine(IN_CLUSTER, now=NOW.timestamp())
    engine.apply(objects)
    serve_all(engine)
    assert engine.graph.crashes == {}
    return ComparedState("", (), tuple(engine.hops()), engine.verified())


def checked(before: dict[Key, Object | None], after: dict[Key, Object | None]) -> tuple[HopChange, ...]:
    return compare(state(before), state(after)).hops


def rehearsed(before: dict[Key, Object | None], edited: Key, obj: Object | None, live: Engine | None = None) -> Consequences:
    rehearsal = Rehearsal(IN_CLUSTER, NOW.timestamp())
    if live:
        rehearsal.follow(live.graph, NOW.timestamp())
    rehearsal.changed(before)
    return done(rehearsal.edit(edited, obj))


def running(*states: dict[Key, Object | None]) -> Engine:
    """An engine that has served these states one after the other."""
    engine, _ = settled(states[0], settings=IN_CLUSTER)
    engine.verifications.started()
    for objects in states[1:]:
        engine.apply(objects)
        settle(engine, Snapshot())
    return engine


def test_two_gateways_reach_the_backend_over_three_protocols() -> None:
    engine = running(world(STATES["verified"]))
    assert set(PORTS.of(engine.graph, GATEWAYS[0], SERVICE, 443)) == {Protocol.AUTO, Protocol.H2, Protocol.TCP}
    assert {gateway for gateway, _, _ in engine.verified()} == set(GATEWAYS)


# --- every pair -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_check_says_of_every_pair_whether_it_is_weaker(before: str, after: str) -> None:
    changes = checked(world(STATES[before]), world(STATES[after]))
    kind = expected(before, after)
    assert [(hop_change.gateway, hop_change.change.kind) for hop_change in changes] == (
        [(gateway, kind) for gateway in GATEWAYS] if changes else []
    )
    assert bool(changes) is (before != after)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_the_webhook_refuses_of_every_pair_what_is_weaker(before: str, after: str) -> None:
    verdict = rehearsed(world(STATES[before]), POLICY, STATES[after])
    weaker = expected(before, after) is ChangeKind.WEAKER
    assert [hop_change.gateway for hop_change in verdict.weaker] == (GATEWAYS if weaker else [])
    assert len(verdict.refused) == (len(GATEWAYS) if weaker else 0)
    assert not verdict.other_trust and not verdict.not_judged


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_the_record_says_of_every_pair_what_it_was(before: str, after: str) -> None:
    engine = running(world(STATES[before]), {POLICY: STATES[after]})
    kinds = [edit.change.kind for edit in engine.verifications.edits()]
    assert kinds == ([] if before == after else [expected(before, after)])


# --- in two steps -----------------------------------------------------------------------------------------------------

GONE: dict[str, dict[Key, Object | None]] = {
    "the policy's CA is missing": {POLICY: CLOSED},
    "the Service is deleted": {SERVICE: None},
}
"""How to close a hop on the way."""


@pytest.mark.parametrize(("strong", "weak"), DOWN)
@pytest.mark.parametrize("closing", GONE)
def test_a_forbidden_change_is_also_forbidden_over_a_closed_hop(strong: str, weak: str, closing: str) -> None:
    """By a webhook that knows how the hop was at best, and in the record."""
    objects, closed = world(STATES[strong]), GONE[closing]
    ((gone, obj),) = closed.items()
    engine = running(objects, closed)
    assert not rehearsed(objects, gone, obj, engine).refused, "closed is not weaker"
    objects = {**objects, **closed, POLICY: closed.get(POLICY, STATES[weak])}
    engine.apply(objects)
    settle(engine, Snapshot())
    last = (POLICY, STATES[weak]) if gone == POLICY else (SERVICE, WORLD[SERVICE])
    assert len(rehearsed(objects, *last, engine).refused) == len(GATEWAYS)
    engine.verifications.edits()
    engine.apply(dict([last]))
    settle(engine, Snapshot())
    (edit,) = engine.verifications.edits()
    assert edit.change.weaker


@pytest.mark.parametrize("weak", RANK[:-1])
def test_a_policy_that_cannot_be_fulfilled_still_has_its_requirements(weak: str) -> None:
    """Also where nothing is remembered: its references to CAs say that all was to be verified."""
    for hop_change in checked(world(CLOSED), world(STATES[weak])):
        assert hop_change.weaker
    assert rehearsed(world(CLOSED), POLICY, STATES[weak]).refused
    assert not rehearsed(world(CLOSED), POLICY, STATES["verified"]).refused


def test_a_waiver_after_its_policy_does_not_weaken_a_hop_that_never_connected() -> None:
    late = mk_waiver("a/late", "All")
    objects = world(mk_state(waiver("late")))
    engine = running(world(None), objects)
    assert not rehearsed(objects, key(late), late, engine).refused
    engine = running(world(STATES["verified"]), objects)
    assert rehearsed(objects, key(late), late, engine).refused, "but of one that was verified it is"


def test_a_closed_hop_that_requires_more_cas_does_not_count_as_verified_by_them() -> None:
    """Neither the record nor the webhook forgets by which CAs it was verified while it connected."""
    both = mk_config_map("a/both", ca_pem("good") + ca_pem("foreign"))
    denied = mk_profile("a/f", **{**RULES, "backendTLS": {"minTLSVersion": "1.3"}})
    old_tls = mk_policy("a/p", "backend", "api.example", ["both"], spec={"options": {"lasthop.dev/max-tls-version": "1.2"}})
    objects = world(STATES["verified"], both)
    closed = {POLICY: old_tls, **keyed(denied)}
    engine = running(objects, closed)
    wider = mk_state("both")
    assert rehearsed({**objects, **closed}, POLICY, wider, engine).refused


def test_a_waiver_on_the_way_to_plaintext_is_refused_at_both_steps() -> None:
    for name in ("all waived", "names waived", "dates waived"):
        assert rehearsed(world(STATES["verified"]), POLICY, STATES[name]).refused
        assert rehearsed(world(STATES[name]), POLICY, None).refused, "deleted"
        elsewhere = mk_policy("a/p", "elsewhere", "api.example", ["c"])
        assert rehearsed(world(STATES[name]), POLICY, elsewhere).refused, "aimed elsewhere"


def test_the_target_of_a_waiver_may_not_change_its_end_or_its_checks() -> None:
    ends = {"early": "2026-12-01T00:00:00Z", "late": "2099-01-01T00:00:00Z", "never": ""}
    for (before, early), (after, late) in itertools.permutations(ends.items(), 2):
        first, second = (mk_waiver("a/all", "All", expires=end) for end in (early, late))
        verdict = rehearsed(world(STATES["all waived"], first), key(second), second)
        assert bool(verdict.refused) is (list(ends).index(after) > list(ends).index(before)), (before, after)


# --- trust ------------------------------------------------------------------------------------------------------------

CAS = {"one": ca_pem("one"), "two": ca_pem("two"), "three": ca_pem("three")}


def bundle(*names: str) -> Object:
    return mk_config_map("a/c", "".join(CAS[name] for name in names))


@pytest.mark.parametrize(
    ("before", "after", "kind", "came", "went"),
    [
        (["one"], ["two"], ChangeKind.OTHER_TRUST, ["two"], ["one"]),
        (["one"], ["one", "two"], ChangeKind.WEAKER, ["two"], []),
        (["one", "two"], ["one"], ChangeKind.STRONGER, [], ["two"]),
        (["one", "two"], ["two", "three"], ChangeKind.OTHER_TRUST, ["three"], ["one"]),
    ],
)
def test_cas_that_came_and_went_are_named_in_check_and_record(
    before: list[str], after: list[str], kind: ChangeKind, came: list[str], went: list[str]
) -> None:
    for change in checked(world(STATES["verified"], bundle(*before)), world(STATES["verified"], bundle(*after))):
        assert change.change.kind is kind
        _named(change.facts, came, went)
    engine = running(world(STATES["verified"], bundle(*before)), keyed(bundle(*after)))
    (edit,) = engine.verifications.edits()
    assert edit.change.kind is kind
    _named(tuple(map(str, edit.change.facts)), came, went)


def _named(facts: Iterable[str], came: list[str], went: list[str]) -> None:
    (fact,) = facts
    added, _, removed = fact.partition("no longer trusts ")
    assert [name in added for name in CAS] == [name in came for name in CAS]
    assert [name in removed for name in CAS] == [name in went for name in CAS]
    assert fact.count("SHA-256 ") == len(came) + len(went)


def test_a_second_ca_beside_the_first_and_an_older_tls_are_refused() -> None:
    more = mk_config_map("a/more", ca_pem("foreign"))
    for refs, options in ((["c", "more"], {}), (["c"], {"lasthop.dev/min-tls-version": "1.0"})):
        policy = mk_policy("a/p", "backend", "api.example", refs, spec={"options": options})
        assert rehearsed(world(STATES["verified"], more), POLICY, policy).refused, refs
        assert not rehearsed(world(policy, more), POLICY, STATES["verified"]).refused


def test_other_trust_is_a_warning_of_the_webhook_and_no_refusal() -> None:
    more = mk_config_map("a/more", ca_pem("foreign"))
    verdict = rehearsed(world(STATES["verified"], more), POLICY, mk_state("more"))
    assert not verdict.refused and not verdict.weaker
    assert [hop_change.gateway for hop_change in verdict.other_trust] == GATEWAYS
    assert (
        "trusts CA foreign" in verdict.other_trust[0].facts[0]
        and "no longer trusts CA good" in verdict.other_trust[0].facts[0]
    )


def test_a_revocation_list_and_a_client_certificate_that_go_are_weaker() -> None:
    with_list = mk_config_map("a/c", ca_pem("good"), crl_pem("good"))
    (change, _) = checked(world(STATES["verified"], with_list), world(STATES["verified"]))
    assert change.weaker and change.facts == ("revocation lists are no longer checked",)
    option = {"options": {"lasthop.dev/client-certificate": "own"}}
    showing = mk_policy("a/p", "backend", "api.example", ["c"], spec=option)
    secret, allowed = mk_secret("a/own", *key_pair("own")), world(STATES["verified"])
    verdict = rehearsed({**allowed, **keyed(showing, secret)}, POLICY, STATES["verified"])
    assert len(verdict.refused) == len(GATEWAYS)
    assert "no longer presents the client certificate of Secret a/own" in verdict.refused[0]


def test_requirements_of_closed_hops_are_compared_too() -> None:
    denied = mk_profile("a/f", admission=RULES["admission"], backendTLS={"plaintextBackends": "Deny"})
    verdict = rehearsed(world(CLOSED, denied), POLICY, None)
    assert [hop_change.gateway for hop_change in verdict.weaker] == GATEWAYS


def test_another_pinned_key_is_a_recorded_change() -> None:
    engine = running(world(STATES["pinned only"]), keyed(mk_pin_set("a/pins", OTHER_PIN)))
    (edit,) = engine.verifications.edits()
    assert edit.change.kind is ChangeKind.OTHER_TRUST
    assert edit.before and edit.after
    assert edit.before.digest != edit.after.digest, "also for those who compare digests"


def test_a_waiver_that_ends_later_is_recorded_with_its_end() -> None:
    first = mk_waiver("a/all", "All", expires="2026-12-01T00:00:00Z")
    engine = running(world(STATES["all waived"], first), keyed(mk_waiver("a/all", "All")))
    (edit,) = engine.verifications.edits()
    assert edit.change.weaker
    assert edit.because == "VerificationWaiver a/all was changed"
    assert str(edit.change) == "the waiver ends never, no longer 2026-12-01 00:00 UTC"


# --- several Gateways and protocols -----------------------------------------------------------------------------------


def test_each_of_two_gateways_has_its_own_record() -> None:
    """One permits waivers, the other does not and fails closed."""
    strict = mk_profile("a/strict", backendTLS={"waivers": "Deny"})
    engine = running(world(STATES["verified"], strict, *gateways(other="strict")), {POLICY: STATES["all waived"]})
    first, second = engine.verifications.edits()
    assert first.after and first.after.strength is Strength.WAIVED_ALL and not first.after.refused
    assert first.change.weaker and first.gateways == (GATEWAYS[0],)
    assert second.change.kind is ChangeKind.CLOSED and second.gateways == (GATEWAYS[1],)


def test_the_lower_tls_version_of_two_gateways_is_the_best_state_of_the_port() -> None:
    newer = mk_profile("a/newer", backendTLS={"minTLSVersion": "1.3"})
    engine = running(world(STATES["verified"], newer, *gateways(other="newer")))
    ((_, known),) = engine.verifications.ports().items()
    versions = {gateway: hop.now.basis.versions for hop in known.hops for gateway in hop.gateways if hop.now.basis}
    assert versions == {GATEWAYS[0]: ("1.2", "1.3"), GATEWAYS[1]: ("1.3", "1.3")}
    assert [verification.basis.versions for verification in known.held if verification.basis] == [("1.2", "1.3")]


@pytest.mark.parametrize(("speaks", "used"), [("HTTP11", Protocol.AUTO), ("TCP", Protocol.TCP)])
def test_a_protocol_that_is_refused_does_not_hide_that_another_is_plaintext(speaks: str, used: Protocol) -> None:
    """An XBackend speaks one protocol; routes of another kind are refused, whichever comes first."""
    to = [{"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"}]
    routes = {
        Protocol.AUTO: mk_route("a/web", "a/g", to, ["web.example"]),
        Protocol.H2: mk_route("a/calls", "a/g", to, ["calls.example"], kind="GRPCRoute"),
        Protocol.TCP: mk_stream_route("TCPRoute", "a/stream", "a/g", to, section="tcp"),
    }
    leading = {used, Protocol.H2}
    objects = keyed(
        mk_class(),
        mk_gateway("a/g", LISTENERS),
        mk_xbackend("a/x", "x.example", protocol=speaks),
        *(routes[route_name] for route_name in leading),
    )
    engine, _ = settled(objects)
    port = (Key("Gateway", "a", "g"), Key("XBackend", "a", "x"), 443)
    connected = {
        gateway: not isinstance(hop_tls(engine.graph, *port, gateway), Refused) for gateway in PORTS.of(engine.graph, *port)
    }
    assert connected == {used: True, Protocol.H2: False}
    assert engine.verified()[port] == HopVerification(Strength.PLAINTEXT)


# --- acknowledgements -------------------------------------------------------------------------------------------------

MODES = ("Plaintext", "TLS", "WaivedAll", "WaivedNames", "WaivedExpiry", "PinnedOnly", "Verified", "yes", "")


def weakened(engine: Engine) -> int:
    return len([hop for hop in engine.weakened() if hop.backend.name in ("backend", "x")])


def annotated(obj: Object, value: str) -> Object:
    annotations = StringMap.of({"lasthop.dev/acknowledged": value} if value else {})
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations))


@pytest.mark.parametrize("now", ["plaintext", "pinned only"])
@pytest.mark.parametrize("protocol", ["", "http", "kubernetes.io/h2c"])
def test_the_protocol_of_a_port_acknowledges_plaintext_and_no_other_weakening(now: str, protocol: str) -> None:
    port = {"name": "https", "port": 443, **({"appProtocol": protocol} if protocol else {})}
    engine = running(world(STATES["verified"], mk_service("a/backend", [port])), {POLICY: STATES[now]})
    assert weakened(engine) == (0 if protocol and now == "plaintext" else len(GATEWAYS))


@pytest.mark.parametrize("value", MODES)
def test_an_annotation_acknowledges_exactly_what_it_names(value: str) -> None:
    pinned = STATES["pinned only"]
    assert pinned
    engine = running(world(STATES["verified"]), {POLICY: annotated(pinned, value)})
    assert weakened(engine) == (0 if value == "PinnedOnly" else len(GATEWAYS))
    validation = {"hostname": "x.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "c"}]}
    to = [{"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"}]
    plain = mk_xbackend("a/x", "x.example")
    objects = keyed(
        mk_class(),
        mk_gateway("a/g"),
        mk_config_map("a/c", ca_pem("good")),
        mk_xbackend("a/x", "x.example", "ServerOnly", validation),
        mk_route("a/web", "a/g", to),
    )
    engine, _ = settled(objects)
    engine.apply(keyed(annotated(plain, value)))
    settle(engine, Snapshot())
    assert weakened(engine) == (0 if value == "Plaintext" else 1)


@pytest.mark.parametrize("now", ["plaintext", "pinned only"])
@pytest.mark.parametrize("named", ["Plaintext", "PinnedOnly"])
def test_an_operator_acknowledges_exactly_what_is_named_at_the_gateways_of_the_profile(now: str, named: str) -> None:
    entry = {"namespace": "a", "name": "backend", "verification": named, "reason": "mesh"}
    profile = mk_profile("a/said", backendTLS={"waivers": "Allow", "acknowledged": [entry]})
    objects = world(STATES["verified"], profile, *gateways(other="said"))
    engine = running(objects, {POLICY: STATES[now]})
    meant = {"plaintext": "Plaintext", "pinned only": "PinnedOnly"}[now] == named
    assert weakened(engine) == (1 if meant else len(GATEWAYS))


@pytest.mark.parametrize("now", ["all waived", "names waived", "dates waived", "verified"])
def test_a_waiver_is_its_own_acknowledgement(now: str) -> None:
    engine = running(world(STATES["verified"]), {POLICY: STATES[now]})
    assert weakened(engine) == 0


def test_the_gate_does_not_take_an_authors_acknowledgement_for_permission() -> None:
    pinned = STATES["pinned only"]
    assert pinned
    assert rehearsed(world(STATES["verified"]), POLICY, annotated(pinned, "PinnedOnly")).refused
    plain = mk_service("a/backend", [{"name": "https", "port": 443, "appProtocol": "http"}])
    assert rehearsed(world(STATES["verified"], plain), POLICY, None).refused


# --- parts that were not compared -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, 250])
@pytest.mark.parametrize("last", ["aaa", "zzz"])
def test_however_many_hops_an_edit_concerns_each_is_compared(count: int, last: str) -> None:
    ports = [{"name": f"p{number}", "port": 1000 + number} for number in range(count)]
    refs = [{"name": "many", "port": 1000 + number} for number in range(count)]
    aims = [{"group": "", "kind": "Service", "name": name} for name in ("many", last)]
    objects = {
        **WORLD,
        **keyed(
            mk_service("a/many", ports),
            mk_service(f"a/{last}"),
            mk_route(
                "a/many", "a/g", [], ["many.example"], rules=[{"backendRefs": refs[n : n + 16]} for n in range(0, count, 16)]
            ),
            mk_route("a/last", "a/g", [{"name": last, "port": 443}], ["last.example"]),
            mk_policy("a/q", "", "old.example", ["c"], targets=aims),
        ),
    }
    edited = mk_policy("a/q", "", "new.example", ["c"], targets=aims[:1])
    verdict = rehearsed(objects, key(edited), edited)
    (refused,) = verdict.refused
    assert f"Service a/{last}:443 would be plaintext" in refused
    assert len(verdict.other_trust) == count


@pytest.mark.parametrize("before", [False, True])
def test_a_hop_that_cannot_be_computed_is_not_judged(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    policy = STATES["verified"]
    assert policy

    real = module._connected

    def crashing(g: Graph, tls: BackendTLS | Plaintext, port_name: str) -> HopVerification:
        if isinstance(tls, BackendTLS) is before:
            raise RuntimeError("a bug")
        return real(g, tls, port_name)

    monkeypatch.setattr(module, "_connected", crashing)
    verdict = rehearsed(world(policy), POLICY, None)
    assert verdict.refused == () and verdict.not_judged


def test_an_edit_whose_targets_cannot_be_computed_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An indexer of claims keeps its entries when it crashes, so that nothing seems to change."""
    real = targets.service_of

    def crashing(policy: Key, target: Any) -> Key | None:
        if target.name == "elsewhere":
            raise RuntimeError("a bug")
        return real(policy, target)

    monkeypatch.setattr(targets, "service_of", crashing)
    verdict = rehearsed(world(STATES["verified"]), POLICY, mk_policy("a/p", "elsewhere", "api.example", ["c"]))
    assert verdict.weaker == () and verdict.refused == ()
    (text,) = verdict.not_judged
    assert "Lasthop failed in" in text
    assert rehearsed(world(STATES["verified"]), POLICY, STATES["verified"]).not_judged == ()


def test_an_edit_is_not_judged_by_policies_that_have_not_been_read() -> None:
    """What seems to be plaintext before and after may have a policy that the controller does not know."""
    engine = running(world(None))
    other = mk_route("a/web", "", BACKEND, ["other.example"], parents=PARENTS)
    again = mk_gateway("a/g", LISTENERS)
    for unknown, judged in (((), True), ((Unknown(False, "b", "x"),), True), ((Unknown(False, "a", "403"),), False)):
        engine.policies.set_unknown(unknown)
        verdict = rehearsed(world(None), key(again), None, engine)
        assert (verdict.not_judged == ()) is judged, unknown
    assert "the BackendTLSPolicies are not known: 403" in verdict.not_judged
    assert not rehearsed(world(STATES["verified"]), key(other), other, engine).not_judged, "a policy decides there"
