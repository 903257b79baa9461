"""Weaker verification of a backend is an error until an acknowledgement; the record lists every change.

A port that loses its last policy is plaintext, as the spec has it."""

from __future__ import annotations

import json

import msgspec
import pytest

from lasthop.base.api.meta import Key, Object, StringMap
from lasthop.base.api.status import RouteStatus
from lasthop.edge.sinks.kubernetes.status_updater import transitions
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.explain.explain import explain
from lasthop.engine.plan.finding import Finding
from tests.snapshot import Snapshot, settle, settled
from tests.world import (
    NOW,
    STORE,
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    mk_slice,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

POLICY = Key("BackendTLSPolicy", "a", "p")
ROUTE = Key("HTTPRoute", "a", "r")
GATEWAY = Key("Gateway", "a", "g")
WORLD = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/backend"),
    mk_route("a/r", "a/g", [{"name": "backend", "port": 443}]),
    mk_config_map("a/c", ca_pem("good")),
    mk_policy("a/p", "backend", "api.example", ["c"], section="https"),
)


@pytest.fixture
def engine() -> Engine:
    made, _ = settled(WORLD)
    made.verifications.started()
    assert downgraded(made) == []
    return made


def downgraded(engine: Engine) -> list[Finding]:
    return [finding for finding in engine.findings() if finding.reason == "NoLongerVerified"]


def edit(engine: Engine, changes: dict[Key, Object | None]) -> list[Finding]:
    engine.apply(changes)
    settle(engine, Snapshot())
    return downgraded(engine)


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("weaker", [False, True])
@pytest.mark.parametrize("weight", [0, 1])
def test_a_route_reports_failing_and_weakened_hops_independently(failing: bool, weaker: bool, weight: int) -> None:
    """A backend of weight 0 gets no requests, so its failure does not concern the route; its earlier policy does."""
    route = mk_route("a/r", "a/g", [{"name": "backend", "port": 443, "weight": weight}])
    engine, snapshot = settled({**WORLD, **keyed(route, mk_slice("a/backend-1", "backend", ["10.0.0.1"]))})
    changes: dict[Key, Object | None] = {}
    changes |= {Key("EndpointSlice", "a", "backend-1"): None} if failing else {}
    changes |= {POLICY: None} if weaker else {}
    engine.apply(changes)
    settle(engine, snapshot)
    status = snapshot.status[ROUTE]
    assert isinstance(status, RouteStatus)
    conditions = {(condition.type, condition.status, condition.reason) for condition in status.parents[0].conditions}
    assert (("BackendConnected", "False", "NoEndpoints") in conditions) == (failing and weight > 0)
    assert (("VerificationWeakened", "True", "NoLongerVerified") in conditions) == weaker


def test_a_deleted_policy_is_an_error_of_the_route(engine: Engine) -> None:
    (finding,) = edit(engine, {POLICY: None})
    assert (finding.object, finding.severity) == (ROUTE, "error")
    assert finding.message == "backend a/backend:443 is plaintext now, because BackendTLSPolicy a/p was deleted."


def test_a_mistyped_target_is_named(engine: Engine) -> None:
    (finding,) = edit(engine, keyed(mk_policy("a/p", "backed", "api.example", ["c"], section="https")))
    assert finding.message.endswith("because BackendTLSPolicy a/p names Service a/backed, which does not exist.")


def test_a_target_that_moved_on_is_named(engine: Engine) -> None:
    (finding,) = edit(engine, keyed(mk_service("a/other"), mk_policy("a/p", "other", "api.example", ["c"])))
    assert finding.message.endswith("because BackendTLSPolicy a/p names Service a/other instead.")


def test_a_policy_that_never_worked_counts_as_one(engine: Engine) -> None:
    assert edit(engine, keyed(mk_policy("a/p", "backend", "api.example", ["nowhere"]))) == []
    assert len(edit(engine, {POLICY: None})) == 1


def test_a_renamed_port_is_refused_and_not_plaintext(engine: Engine) -> None:
    assert edit(engine, keyed(mk_service("a/backend", [{"name": "tls", "port": 443}]))) == []
    assert len(edit(engine, {POLICY: None})) == 1


@pytest.mark.parametrize(
    "acknowledged",
    [
        keyed(mk_service("a/backend", [{"name": "https", "port": 443, "appProtocol": "http"}])),
        keyed(mk_policy("a/again", "backend", "api.example", ["c"])),
        {ROUTE: None},
        {Key("Service", "a", "backend"): None},
    ],
)
def test_it_ends_when_plaintext_is_meant_or_over(engine: Engine, acknowledged: dict[Key, Object | None]) -> None:
    assert edit(engine, {POLICY: None})
    assert edit(engine, acknowledged) == []


def test_a_route_that_comes_back_later_has_nothing_to_lose(engine: Engine) -> None:
    edit(engine, {ROUTE: None})
    edit(engine, {POLICY: None})
    assert edit(engine, {ROUTE: WORLD[ROUTE]}) == []


def test_where_plaintext_is_denied_nothing_is_downgraded(engine: Engine) -> None:
    denied = mk_profile("a/f", backendTLS={"plaintextBackends": "Deny"})
    gateway = mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")})
    assert edit(engine, {**keyed(denied, gateway), POLICY: None}) == []


def test_each_route_has_one_finding_for_any_number_of_gateways(engine: Engine) -> None:
    parents = [{"name": "g"}, {"name": "h"}]
    edit(engine, keyed(mk_gateway("a/h"), mk_route("a/r", "", [{"name": "backend", "port": 443}], parents=parents)))
    assert len(edit(engine, {POLICY: None})) == 1


def test_nothing_is_unsettled_by_what_is_remembered(engine: Engine) -> None:
    assert not engine.unsettled
    edit(engine, {POLICY: None})
    assert not engine.unsettled
    edit(engine, {POLICY: WORLD[POLICY]})
    assert not engine.unsettled


PIN = "A" * 43 + "="
ALLOWED = mk_profile("a/f", backendTLS={"waivers": "Allow"})
LOOSE = mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")})
PINNED = mk_policy("a/p", "backend", "api.example", [own_ref("PinSet", "pins")], section="https")


def acknowledging(obj: Object, verification: str) -> dict[Key, Object | None]:
    annotations = StringMap.of({"lasthop.dev/acknowledged": verification})
    return keyed(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations)))


def edits(engine: Engine) -> list[tuple[str, str, str, bool, str]]:
    changes = [(e, e.before, e.after) for e in engine.verifications.edits()]
    return [(was.words, now.words, e.because, e.change.weaker, now.acknowledged) for e, was, now in changes if was and now]


def test_pins_alone_in_place_of_a_ca_are_an_error_of_route_policy_and_gateway_until_acknowledged(engine: Engine) -> None:
    snapshot = Snapshot()
    engine.apply(keyed(mk_pin_set("a/pins", PIN), PINNED))
    settle(engine, snapshot)
    because = "BackendTLSPolicy a/p now verifies against PinSet a/pins, no longer against ConfigMap a/c"
    (finding,) = downgraded(engine)
    assert finding.message == f"backend a/backend:443 is pinned only now, because {because}."
    assert "annotation lasthop.dev/acknowledged: PinnedOnly of BackendTLSPolicy a/p" in finding.remedy
    assert edits(engine) == [("verified (CA) for api.example", "pinned only", because, True, "")]
    for key, type in ((ROUTE, "VerificationWeakened"), (POLICY, "VerificationWeakened"), (GATEWAY, "BackendsWeakened")):
        assert f"type='{type}', status='True', reason='NoLongerVerified'" in repr(snapshot.status[key]), key
    assert edit(engine, acknowledging(PINNED, "PinnedOnly")) == []
    by = "annotation lasthop.dev/acknowledged of BackendTLSPolicy a/p"
    assert edits(engine) == [("pinned only", "pinned only", f"acknowledged by {by}", False, by)]


def test_the_annotation_for_pins_does_not_acknowledge_plaintext(engine: Engine) -> None:
    assert len(edit(engine, acknowledging(mk_policy("a/p", "elsewhere", "api.example", ["c"]), "PinnedOnly"))) == 1


def test_a_pin_set_that_loses_its_cas_is_named(engine: Engine) -> None:
    refs = [{"group": "", "kind": "ConfigMap", "name": "c"}]
    assert edit(engine, keyed(mk_pin_set("a/pins", PIN, caCertificateRefs=refs), PINNED)) == []
    assert edits(engine)[0][:2] == ("verified (CA) for api.example", "verified (pinned) for api.example")
    (finding,) = edit(engine, keyed(mk_pin_set("a/pins", PIN)))
    assert finding.message == "backend a/backend:443 is pinned only now, because PinSet a/pins has other content now."


@pytest.mark.parametrize("waives", ["All", "Names", "Expiry"])
def test_a_waiver_is_its_own_acknowledgement_and_recorded(engine: Engine, waives: str) -> None:
    refs = [own_ref("VerificationWaiver", "w"), *([] if waives == "All" else ["c"])]
    policy = mk_policy("a/p", "backend", "api.example", refs, section="https")
    assert edit(engine, keyed(ALLOWED, LOOSE, mk_waiver("a/w", waives), policy)) == []
    ((before, after, because, weaker, acknowledged),) = edits(engine)
    assert (before, weaker, acknowledged) == ("verified (CA) for api.example", True, 'VerificationWaiver a/w: "for now"')
    assert after.startswith(f"waived ({waives})")
    assert because == "BackendTLSPolicy a/p uses VerificationWaiver a/w now"
    assert edit(engine, {POLICY: None})[0].message.endswith("because BackendTLSPolicy a/p was deleted.")
    assert edit(engine, {POLICY: WORLD[POLICY]}) == []


def test_names_of_ports_that_change_places_are_named(engine: Engine) -> None:
    ports = [{"name": "web", "port": 443}, {"name": "https", "port": 8443}]
    (finding,) = edit(engine, keyed(mk_service("a/backend", ports)))
    assert finding.message.endswith("because port https of Service a/backend is now called web.")
    assert edits(engine)[-1][1:4] == ("plaintext", "port https of Service a/backend is now called web", True)


def test_a_policy_that_names_another_port_is_named(engine: Engine) -> None:
    ports = [{"name": "https", "port": 443}, {"name": "other", "port": 8443}]
    policy = mk_policy("a/p", "backend", "api.example", ["c"], section="other")
    (finding,) = edit(engine, keyed(mk_service("a/backend", ports), policy))
    assert finding.message.endswith("because BackendTLSPolicy a/p names only port other of Service a/backend.")


def test_a_port_that_was_closed_by_a_strays_typo_alone_has_lost_nothing() -> None:
    ports = [{"name": "https", "port": 443}, {"name": "web", "port": 80}]
    route = mk_route("a/r", "a/g", [{"name": "backend", "port": 80}])
    policy = mk_policy("a/p", "backend", "api.example", ["c"], section="htps")
    engine, _ = settled({**WORLD, **keyed(mk_service("a/backend", ports), route, policy)})
    assert edit(engine, {POLICY: WORLD[POLICY]}) == []


def test_an_operator_acknowledges_by_name_and_reason_for_its_own_gateways(engine: Engine) -> None:
    acknowledged = {"namespace": "a", "name": "backend", "reason": "behind a mesh since May"}
    profile = mk_profile("a/f", backendTLS={"acknowledged": [acknowledged]})
    assert edit(engine, {**keyed(mk_gateway("a/other")), POLICY: None})
    assert edit(engine, keyed(profile, LOOSE)) == []
    assert edits(engine)[-1][4] == 'GatewayProfile a/f: "behind a mesh since May"'
    parents = [{"name": "g"}, {"name": "other"}]
    both = mk_route("a/r", "", [{"name": "backend", "port": 443}], parents=parents)
    assert len(edit(engine, keyed(both))) == 1, "the other Gateway has another operator"


@pytest.mark.parametrize("entry", [{"port": 80}, {"name": "other"}, {"verification": "PinnedOnly"}, {"reason": " "}])
def test_a_word_that_is_not_for_this_backend_acknowledges_nothing(engine: Engine, entry: dict[str, object]) -> None:
    acknowledged = {"namespace": "a", "name": "backend", "reason": "mesh", "port": 443, **entry}
    profile = mk_profile("a/f", backendTLS={"acknowledged": [acknowledged]})
    assert len(edit(engine, {**keyed(profile, LOOSE), POLICY: None})) == 1


def test_an_xbackend_that_gives_up_its_tls_is_an_error_until_acknowledged() -> None:
    validation = {"hostname": "x.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "c"}]}
    group = "gateway.networking.x-k8s.io"
    route = mk_route("a/r", "a/g", [{"group": group, "kind": "XBackend", "name": "x"}])
    verified = mk_xbackend("a/x", "x.example", "ServerOnly", validation)
    engine, _ = settled({**WORLD, **keyed(verified, route)})
    (finding,) = edit(engine, keyed(mk_xbackend("a/x", "x.example")))
    assert finding.message == "backend XBackend a/x:443 is plaintext now, because XBackend a/x has tls.mode None."
    assert edit(engine, acknowledging(mk_xbackend("a/x", "x.example"), "Plaintext")) == []


def test_another_ca_and_other_names_are_recorded_and_no_error(engine: Engine) -> None:
    assert edit(engine, keyed(mk_config_map("a/c", ca_pem("other")))) == []
    assert edits(engine) == [(*["verified (CA) for api.example"] * 2, "ConfigMap a/c was changed", False, "")]
    assert edit(engine, keyed(mk_policy("a/p", "backend", "new.example", ["c"], section="https"))) == []
    ((_, after, because, weaker, _),) = edits(engine)
    assert (after, weaker) == ("verified (CA) for new.example", False)
    assert because == "BackendTLSPolicy a/p was edited: accepts the name new.example, no longer api.example"


def restarted(engine: Engine, objects: dict[Key, Object | None]) -> Engine:
    """Another process that has read these objects and the memory of the one before: it saw no edit of them."""
    made = Engine(now=NOW.timestamp())
    made.verifications.recall(engine.verifications.ports(), complete=True)
    made.apply(objects)
    settle(made, Snapshot())
    return made


def test_only_the_reference_with_other_content_is_named() -> None:
    policy = mk_policy("a/p", "backend", "api.example", ["c", "d"], section="https")
    both = ca_pem("good") + ca_pem("second")
    objects = {**WORLD, **keyed(mk_config_map("a/c", both), mk_config_map("a/d", ca_pem("third")), policy)}
    engine, _ = settled(objects)
    engine.verifications.started()
    for changed, seen, unseen in (
        (mk_config_map("a/d", ca_pem("fourth")), "ConfigMap a/d was changed", "ConfigMap a/d has other content now"),
        (mk_config_map("a/c", both + ca_pem("fifth")), "ConfigMap a/c was changed", "ConfigMap a/c has other content now"),
        (
            mk_config_map("a/c", both),
            "ConfigMap a/c was changed",
            "one of ConfigMap a/c, ConfigMap a/d has other content now",
        ),
    ):
        objects |= keyed(changed)
        assert [line[2] for line in edits(restarted(engine, objects))] == [unseen]
        edit(engine, keyed(changed))
        assert [line[2] for line in edits(engine)] == [seen]


def test_a_hop_that_connects_again_with_other_names_says_that_its_failure_is_over(engine: Engine) -> None:
    changed = keyed(mk_policy("a/p", "backend", "new.example", ["c"], section="https"))
    edit(engine, {Key("ConfigMap", "a", "c"): None})
    edit(engine, changed)
    edits(engine)
    ((_, after, because, _, _),) = edits(restarted(engine, {**WORLD, **changed}))
    assert (after, because) == ("verified (CA) for new.example", "the cause of its failure is resolved")
    edit(engine, keyed(mk_config_map("a/c", ca_pem("good"))))
    ((_, after, because, _, _),) = edits(engine)
    assert (after, because) == ("verified (CA) for new.example", "ConfigMap a/c was created")


def test_the_systems_cas_in_place_of_an_own_one_are_recorded_and_no_error() -> None:
    engine, _ = settled(WORLD, store=STORE)
    assert edit(engine, keyed(mk_policy("a/p", "backend", "api.example", section="https"))) == []
    because = "BackendTLSPolicy a/p now verifies against the system's CAs, no longer against ConfigMap a/c"
    edit_line = "verified (CA) for api.example", "verified (System) for api.example", because, False, ""
    assert edits(engine) == [edit_line]


def test_failing_closed_is_recorded_and_weakens_nothing(engine: Engine) -> None:
    edit(engine, {Key("ConfigMap", "a", "c"): None})
    ((before, after, because, weaker, _),) = edits(engine)
    assert (before, after, weaker) == ("verified (CA) for api.example", "failing closed", False)
    assert because == "ConfigMap a/c was deleted"
    edit(engine, {POLICY: None})
    assert edits(engine) == [("failing closed", "plaintext", "BackendTLSPolicy a/p was deleted", True, "")]


def test_restored_verification_names_the_edit_that_ended_the_failure(engine: Engine) -> None:
    edit(engine, {Key("ConfigMap", "a", "c"): None})
    edits(engine)
    edit(engine, keyed(mk_config_map("a/c", ca_pem("good"))))
    assert edits(engine) == [("failing closed", "verified (CA) for api.example", "ConfigMap a/c was created", False, "")]


def test_plaintext_that_was_never_anything_else_is_not_recorded() -> None:
    engine, _ = settled({key: obj for key, obj in WORLD.items() if key != POLICY})
    plain = mk_service("a/backend", [{"name": "https", "port": 443, "appProtocol": "http"}])
    assert edit(engine, keyed(plain)) == [] and edits(engine) == []
    edit(engine, {POLICY: WORLD[POLICY]})
    verified = "verified (CA) for api.example"
    assert edits(engine) == [("plaintext", verified, "BackendTLSPolicy a/p applies now", False, "")]
    edit(engine, {POLICY: None})
    by = "appProtocol http of Service a/backend"
    assert edits(engine) == [(verified, "plaintext", "BackendTLSPolicy a/p was deleted", True, by)]


def test_an_edit_is_recorded_once_however_many_gateways_and_protocols_lead_there(engine: Engine) -> None:
    parents = [{"name": "g"}, {"name": "h"}]
    edit(engine, keyed(mk_gateway("a/h"), mk_route("a/r", "", [{"name": "backend", "port": 443}], parents=parents)))
    edit(engine, {POLICY: None})
    (hop_edit,) = (
        hop_edit for hop_edit in engine.verifications.edits() if hop_edit.before
    )  # the new Gateway's hop has its own
    assert [gateway.path for gateway in hop_edit.gateways] == ["a/g", "a/h"]


def test_explain_marks_it(engine: Engine) -> None:
    edit(engine, {POLICY: None})
    fact = explain(engine.graph, ROUTE)
    assert fact is not None
    text = msgspec.json.encode(fact).decode()
    assert '"text":"verification is weaker than before, because BackendTLSPolicy a/p was deleted","state":"bad"' in text


def test_events_on_policy_and_gateway_report_the_begin_and_the_end(engine: Engine) -> None:
    before, after = Snapshot(), Snapshot()
    for snapshot, objects in ((before, {}), (after, keyed(mk_pin_set("a/pins", PIN), PINNED))):
        engine.apply(objects)
        settle(engine, snapshot)
    for key, type in ((POLICY, "VerificationWeakened"), (GATEWAY, "BackendsWeakened")):
        new = msgspec.to_builtins(after.status[key])
        clean = json.loads(json.dumps(new))
        for group in (clean, *clean.get("ancestors", ())):
            group["conditions"] = [c for c in group.get("conditions", ()) if c["type"] != type]
        assert [(change.reason, change.warning) for change in transitions(clean, new)] == [(type, True)]
        assert [(change.reason, change.warning) for change in transitions(new, clean)] == [(f"{type}Over", False)]
