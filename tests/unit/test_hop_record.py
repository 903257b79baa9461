"""The record by Gateway and hop: each edit that changes how a hop is verified is an entry, with the object that was edited.

Two Gateways reach the same Services: dev permits waivers, prod does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.memory.record import ChangeRecord, Entry
from tests.snapshot import Snapshot, settle, settled
from tests.world import (
    NOW,
    ca_pem,
    key,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_grant,
    mk_policy,
    mk_profile,
    mk_route,
    mk_secret,
    mk_service,
    mk_waiver,
    own_ref,
    profile_ref,
)

ALLOW, DENY = (mk_profile("a/prod", backendTLS={"waivers": word}) for word in ("Allow", "Deny"))
DEV_ALLOW, DEV_DENY = (mk_profile("a/dev", backendTLS={"waivers": word}) for word in ("Allow", "Deny"))
PARENTS = [{"name": "dev"}, {"name": "prod"}]


def gateway(name: str, profile: str) -> Object:
    return mk_gateway(f"a/{name}", infrastructure={"parametersRef": profile_ref(profile)})


def route(service: str, parents: list[dict[str, str]] | None = None) -> Object:
    to = [{"name": service, "port": 443}]
    return mk_route(f"a/{service}", "", to, [f"{service}.example"], parents=parents or PARENTS)


def policy(service: str, *refs: Any, **options: Any) -> Object:
    return mk_policy(f"a/{service}", service, f"{service}.example", list(refs), **options)


WAIVED = own_ref("VerificationWaiver", "w")
WORLD = keyed(
    mk_class(),
    DENY,
    DEV_ALLOW,
    gateway("dev", "dev"),
    gateway("prod", "prod"),
    mk_config_map("a/ca", ca_pem("good")),
    mk_waiver("a/w", "All", expires="2026-11-20T00:00:00Z"),
    *(mk_service(f"a/{name}") for name in ("waived", "verified", "plain")),
    *(route(name) for name in ("waived", "verified", "plain")),
    policy("waived", WAIVED),
    policy("verified", "ca"),
)
VERIFIED = "verified (CA) for verified.example"


AUTHOR = "ann"


class Running:
    """An engine with a record, as the controller keeps it."""

    def __init__(self, objects: Mapping[Key, Object | None] = WORLD) -> None:
        self.engine, _ = settled(objects)
        self.engine.verifications.started()
        self.record = ChangeRecord()
        self.engine.verifications.edits()

    def edit(self, *objects: Object, deleted: tuple[Key, ...] = ()) -> list[Entry]:
        self.engine.apply({**keyed(*objects), **dict.fromkeys(deleted)})
        settle(self.engine, Snapshot())
        return self.entries()

    def entries(self) -> list[Entry]:
        return list(self.record.add(self.engine.verifications.edits(), 1000.0, lambda key: AUTHOR))


def short(entry: Entry) -> tuple[str, tuple[str, ...], str, str, list[str]]:
    causes = [f"{cause.object} {cause.edit}" for cause in entry.causes]
    return entry.backend, entry.gateways, entry.before, entry.after, causes


def test_prods_profile_that_begins_to_allow_waivers_and_ends_it_again() -> None:
    running = Running()
    changed = ["GatewayProfile a/prod changed"]
    (entry,) = running.edit(ALLOW)
    assert short(entry) == ("a/waived", ("a/prod",), "failing closed", "waived (All)", changed)
    assert (entry.because, entry.effect) == ("GatewayProfile a/prod was changed", "OpenedReduced")
    (entry,) = running.edit(DENY)
    assert short(entry) == ("a/waived", ("a/prod",), "waived (All)", "failing closed", changed)


def test_a_hop_that_opens_says_whether_it_is_fully_verified() -> None:
    running = Running()
    (closed,) = running.edit(policy("verified", "missing"))
    (opened,) = running.edit(policy("verified", "ca"))
    assert (closed.effect, opened.effect, opened.begins_reduced) == ("Closed", "Opened", False)
    deny, allow = (mk_profile("a/prod", backendTLS={"plaintextBackends": word}) for word in ("Deny", "Allow"))
    (closed,) = running.edit(deny)
    (opened,) = running.edit(allow)
    assert (closed.backend, closed.effect) == ("a/plain", "Closed")
    assert (opened.after, opened.effect, opened.begins_reduced) == ("plaintext", "OpenedReduced", True)


def test_a_client_certificate_that_is_renewed_in_its_secret_is_an_entry() -> None:
    tls = {"backend": {"clientCertificateRef": {"name": "shown"}}}
    shown = [mk_secret("a/shown", *key_pair(name)) for name in ("first", "second")]
    dev = mk_gateway("a/dev", infrastructure={"parametersRef": profile_ref("dev")}, tls=tls)
    running = Running({**WORLD, **keyed(dev, shown[0])})
    recorded = next(entry for entry in running.edit(shown[1]) if entry.backend == "a/verified")
    assert short(recorded) == ("a/verified", ("a/dev",), VERIFIED, VERIFIED, ["Secret a/shown changed"])
    (fact,) = recorded.facts
    assert (recorded.effect, fact.subject) == ("Same", "client-certificate")
    assert set(fact.added).isdisjoint(fact.removed)
    assert running.edit(shown[1]) == []


def test_a_third_gateway_that_reaches_a_waived_backend() -> None:
    parents = [*PARENTS, {"name": "third"}]
    running = Running()
    assert running.edit(gateway("third", "dev")) == []
    (entry,) = running.edit(route("waived", parents))
    assert short(entry) == ("a/waived", ("a/third",), "", "waived (All)", ["HTTPRoute a/waived changed"])
    assert entry.effect == "NewReduced"
    other = Running({**WORLD, **keyed(route("waived", parents))})
    (entry,) = other.edit(gateway("third", "dev"))
    assert short(entry) == ("a/waived", ("a/third",), "", "waived (All)", ["Gateway a/third created"])


def test_a_service_that_is_waived_from_its_first_day() -> None:
    dev, prod = Running().edit(mk_service("a/new"), policy("new", WAIVED), route("new"))
    objects = ["BackendTLSPolicy a/new created", "HTTPRoute a/new created", "Service a/new created"]
    assert short(dev) == ("a/new", ("a/dev",), "", "waived (All)", objects)
    assert short(prod) == ("a/new", ("a/prod",), "", "failing closed", objects)
    assert (dev.effect, prod.effect) == ("NewReduced", "New")


def test_every_hop_that_comes_or_goes_is_an_entry_so_that_none_seems_older_than_it_is() -> None:
    running, both = Running(), ("a/dev", "a/prod")
    verified, made = "verified (CA) for new.example", ["HTTPRoute a/new created"]
    assert running.edit(mk_service("a/new"), policy("new", "ca")) == []
    (entry,) = running.edit(route("new"))
    assert short(entry) == ("a/new", both, "", verified, made)
    (entry,) = running.edit(deleted=(key(policy("new", "ca")),))
    assert entry.weaker and entry.after == "plaintext"
    (entry,) = running.edit(deleted=(key(route("new")),))
    assert short(entry) == ("a/new", both, "plaintext", "", ["HTTPRoute a/new deleted"])
    (entry,) = running.edit(policy("new", "ca"), route("new"))
    assert short(entry) == ("a/new", both, "", verified, ["BackendTLSPolicy a/new created", *made])
    assert all(entry.effect == "New" for entry in running.record.record.last_changes().values() if entry.backend == "a/new")


def test_a_verified_backend_gets_a_waiver_and_then_prod_allows_it() -> None:
    running, changed = Running(), ["BackendTLSPolicy a/verified changed"]
    dev, prod = running.edit(policy("verified", WAIVED))
    assert short(dev) == ("a/verified", ("a/dev",), VERIFIED, "waived (All)", changed) and dev.weaker
    assert short(prod) == ("a/verified", ("a/prod",), VERIFIED, "failing closed", changed) and not prod.weaker
    opened = {entry.backend: entry for entry in running.edit(ALLOW)}
    assert opened.keys() == {"a/verified", "a/waived"}
    assert opened["a/verified"].gateways == ("a/prod",) and opened["a/verified"].weaker
    assert not opened["a/waived"].weaker, "it was never verified"


def test_devs_profile_that_denies_waivers_says_nothing_of_prod() -> None:
    running = Running()
    (entry,) = running.edit(DEV_DENY)
    changed = ["GatewayProfile a/dev changed"]
    assert short(entry) == ("a/waived", ("a/dev",), "waived (All)", "failing closed", changed)
    assert "a/prod" not in repr(entry)
    (entry,) = running.edit(DEV_ALLOW)
    assert short(entry) == ("a/waived", ("a/dev",), "failing closed", "waived (All)", changed)
    assert entry.because == "GatewayProfile a/dev was changed"


def test_an_edit_that_concerns_both_is_one_entry_that_names_both() -> None:
    both = ("a/dev", "a/prod")
    running, ca = Running(), ["ConfigMap a/ca changed"]
    (entry,) = running.edit(mk_config_map("a/ca", ca_pem("good") + ca_pem("new")))
    assert short(entry) == ("a/verified", both, VERIFIED, VERIFIED, ca) and entry.weaker
    (fact,) = entry.facts
    assert fact.subject == "ca" and not fact.removed and "CA new" in fact.added[0]
    (entry,) = running.edit(mk_config_map("a/ca", ca_pem("other")))
    assert entry.effect == "OtherTrust" and len(entry.facts[0].removed) == 2
    lower = policy("verified", "ca", spec={"options": {"lasthop.dev/min-tls-version": "1.0"}})
    (entry,) = running.edit(lower)
    assert entry.weaker and [fact.subject for fact in entry.facts] == ["tls-version"]
    assert short(entry)[-1] == ["BackendTLSPolicy a/verified changed"]


def test_a_waiver_whose_end_has_come_is_named_with_that() -> None:
    running = Running()
    running.engine.advance(NOW.timestamp() + 6 * 86400)
    settle(running.engine, Snapshot())
    (entry,) = running.entries()
    assert short(entry) == ("a/waived", ("a/dev",), "waived (All)", "failing closed", ["VerificationWaiver a/w expired"])
    assert entry.because == "VerificationWaiver a/w has expired"
    assert entry.by == "", "the author of the waiver did nothing at that time"


def test_the_last_route_that_goes_ends_a_hop() -> None:
    running = Running()
    (entry,) = running.edit(deleted=(key(route("plain")),))
    assert short(entry) == ("a/plain", ("a/dev", "a/prod"), "plaintext", "", ["HTTPRoute a/plain deleted"])
    assert entry.effect == "Removed"
    (entry,) = running.edit(deleted=(key(route("verified")),))
    assert entry.effect == "Removed"
    (entry,) = running.edit(deleted=(Key("Gateway", "a", "dev"),))
    assert short(entry) == ("a/waived", ("a/dev",), "waived (All)", "", ["Gateway a/dev deleted"])


def test_a_gateway_that_is_given_another_profile_is_the_edit() -> None:
    (entry,) = Running().edit(gateway("prod", "dev"))
    assert short(entry) == ("a/waived", ("a/prod",), "failing closed", "waived (All)", ["Gateway a/prod changed"])


def test_a_reference_grant_that_opens_a_way_to_plaintext_is_the_edit() -> None:
    there = [{"name": "far", "namespace": "b", "port": 443}]
    across = mk_route("a/across", "", there, ["far.example"], parents=PARENTS)
    running = Running({**WORLD, **keyed(mk_service("b/far"), across)})
    grant = mk_grant("b/open", "a")
    (entry,) = running.edit(grant)
    assert short(entry) == ("b/far", ("a/dev", "a/prod"), "", "plaintext", ["ReferenceGrant b/open created"])
    (entry,) = running.edit(deleted=(key(grant),))
    assert short(entry) == ("b/far", ("a/dev", "a/prod"), "plaintext", "", ["ReferenceGrant b/open deleted"])


def test_only_the_objects_behind_a_hop_are_named_among_many_in_one_batch() -> None:
    entries = Running().edit(
        ALLOW, mk_service("a/unrelated"), mk_config_map("a/other", ca_pem("other")), policy("plain", "ca")
    )
    named = {(entry.backend, gateway): short(entry)[-1] for entry in entries for gateway in entry.gateways}
    assert named.keys() == {("a/waived", "a/prod"), ("a/plain", "a/dev"), ("a/plain", "a/prod")}
    assert named["a/waived", "a/prod"] == ["GatewayProfile a/prod changed"]
    assert named["a/plain", "a/dev"] == ["BackendTLSPolicy a/plain created"]


def test_a_profile_that_is_edited_at_once_is_a_cause_only_of_the_hops_that_its_changed_rules_concern() -> None:
    running = Running()
    entries = running.edit(ALLOW, deleted=(key(policy("verified")),))
    assert [(entry.backend, entry.gateways, short(entry)[-1]) for entry in entries] == [
        ("a/verified", ("a/dev", "a/prod"), ["BackendTLSPolicy a/verified deleted"]),
        ("a/waived", ("a/prod",), ["GatewayProfile a/prod changed"]),
    ]
    plaintext = mk_profile("a/prod", backendTLS={"waivers": "Allow", "plaintextBackends": "Allow", "minTLSVersion": "1.3"})
    entries = running.edit(plaintext, policy("verified", "ca"))
    causes = {entry.gateways: short(entry)[-1] for entry in entries if entry.backend == "a/verified"}
    policy_edit = "BackendTLSPolicy a/verified created"
    assert causes == {("a/dev",): [policy_edit], ("a/prod",): [policy_edit, "GatewayProfile a/prod changed"]}


def test_an_edit_that_changes_nothing_is_no_cause_of_a_later_one() -> None:
    running = Running()
    assert running.edit(mk_service("a/waived", [{"name": "https", "port": 443}, {"name": "more", "port": 444}])) == []
    (entry,) = running.edit(ALLOW)
    assert short(entry)[-1] == ["GatewayProfile a/prod changed"]


# --- first sight ------------------------------------------------------------------------------------------------------


def test_the_first_start_counts_and_lists_nothing() -> None:
    engine, _ = settled(WORLD)
    engine.verifications.started()
    assert engine.verifications.edits() == []
    assert engine.verifications.census() == "2 verified, 1 waived (All), 2 plaintext, 1 failing closed"


@pytest.mark.parametrize("complete", [True, False])
def test_changes_while_nothing_ran_are_recorded_if_the_memory_had_all_hops(complete: bool) -> None:
    before = Running().engine.verifications.ports()
    engine = Engine(now=NOW.timestamp())
    engine.verifications.recall(before, complete=complete)
    engine.apply({**WORLD, **keyed(mk_service("a/new"), route("new")), key(route("plain")): None})
    settle(engine, Snapshot())
    engine.verifications.started()
    edits = {(edit.backend.name, edit.before is None, edit.after is None) for edit in engine.verifications.edits()}
    assert edits == {("plain", False, True), *([("new", True, False)] if complete else [])}
    assert not any(port.backend.name == "plain" for port in engine.verifications.ports())


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        ({key(policy("verified")): policy("verified", WAIVED)}, {("verified", "BackendTLSPolicy a/verified changed")}),
        ({key(policy("verified")): None}, {("verified", "BackendTLSPolicy a/verified deleted")}),
        ({key(ALLOW): ALLOW}, {("waived", "GatewayProfile a/prod changed")}),
        ({key(mk_config_map("a/ca", "")): None}, {("verified", "ConfigMap a/ca deleted")}),
        ({key(policy("plain")): policy("plain", "ca")}, {("plain", "BackendTLSPolicy a/plain created")}),
        (
            {key(gateway("prod", "prod")): None},
            {(name, "Gateway a/prod deleted") for name in ("waived", "verified", "plain")},
        ),
    ],
)
def test_edits_while_nothing_ran_name_the_object_if_the_source_noticed_them(
    edited: Mapping[Key, Object | None], expected: set[tuple[str, str]]
) -> None:
    engine = Engine(now=NOW.timestamp())
    engine.verifications.recall(Running().engine.verifications.ports(), complete=True)
    engine.apply({**WORLD, **edited})
    engine.edited_while_stopped({key_edited: key_edited in WORLD for key_edited in edited})
    settle(engine, Snapshot())
    engine.verifications.started()
    hop_changes = engine.verifications.edits()
    assert {
        (hop_edit.backend.name, f"{cause.key} {cause.edit}") for hop_edit in hop_changes for cause in hop_edit.causes
    } == expected
    assert all(hop_edit.causes for hop_edit in hop_changes)
    engine.apply(keyed(DEV_DENY))
    settle(engine, Snapshot())
    later = {str(cause) for edit in engine.verifications.edits() for cause in edit.causes}
    assert later <= {"GatewayProfile a/dev was changed"}


def test_a_waiver_that_is_no_longer_used_has_not_expired() -> None:
    running = Running({**WORLD, **keyed(mk_config_map("a/unread", ca_pem("other", 77)))})
    entries = running.edit(policy("waived", "unread"))  # whose dates are a deadline that nothing had read
    assert [entry.before for entry in entries] == ["waived (All)", "failing closed"]
    assert [short(entry)[-1] for entry in entries] == [["BackendTLSPolicy a/waived changed"]] * 2
