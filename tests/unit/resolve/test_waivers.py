"""Waivers over time, with time as an input; and how pins may be written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.verification import Pin
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.audit import Audit, document, read
from lasthop.engine.outputs.envoy.resource import CLUSTER, Resource, Withdrawal
from lasthop.engine.resolve.trust.pins import digest_of
from tests.snapshot import Snapshot, settle
from tests.world import (
    NOW,
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
    own_ref,
    profile_ref,
)

GATEWAY = Key("Gateway", "a", "g")
POLICY = Key("BackendTLSPolicy", "a", "p")
HOP = "a/g/a/s/443/auto"
END = "2026-11-20T12:00:00Z"
END_TIME = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def engine() -> Engine:
    """One hop under a waiver of All that ends five days from now."""
    built = Engine(now=NOW.timestamp())
    built.apply(
        keyed(
            mk_class(),
            mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
            mk_profile("a/f", backendTLS={"waivers": "Allow"}),
            mk_service("a/s"),
            mk_slice("a/s-1", "s", ["10.0.0.1"]),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
            mk_policy("a/p", "s", "api.example", [own_ref("VerificationWaiver", "w")]),
            mk_waiver("a/w", "All", END),
        )
    )
    return built


def types(snapshot: Snapshot, key: Key) -> set[str]:
    status = snapshot.status[key]
    entries: Any = getattr(status, "ancestors", (status,))
    return {condition.type for entry in entries for condition in entry.conditions}


def test_a_waiver_fails_closed_at_its_second_and_not_before(engine: Engine) -> None:
    snapshot = Snapshot()
    settle(engine, snapshot)
    assert "VerificationDegraded" in types(snapshot, POLICY)
    assert "InsecureBackendVerification" in types(snapshot, GATEWAY)
    assert engine.graph.next_deadline() is not None
    engine.advance(END_TIME - 0.001)
    settle(engine, snapshot)
    assert (GATEWAY, CLUSTER, HOP) in snapshot.xds
    engine.advance(END_TIME)
    update = engine.settle()
    assert update.xds[GATEWAY][CLUSTER][HOP] == Withdrawal(urgent=True)
    snapshot.take(update)
    settle(engine, snapshot)
    assert "VerificationDegraded" not in types(snapshot, POLICY)
    assert "InsecureBackendVerification" not in types(snapshot, GATEWAY)
    assert {finding.reason for finding in engine.findings()} == {"NoValidCACertificate", "InvalidBackendTLS"}


def test_the_end_is_announced_a_week_ahead(engine: Engine) -> None:
    settle(engine, Snapshot())
    assert {finding.reason for finding in engine.findings()} == {"VerificationDegraded", "WaiverExpiresSoon"}
    engine.apply(keyed(mk_waiver("a/w", "All", "2027-11-20T12:00:00Z")))
    engine.settle()
    assert {finding.reason for finding in engine.findings()} == {"VerificationDegraded"}


def test_a_waiver_that_is_prolonged_reaches_the_proxy_and_changes_nothing_else(engine: Engine) -> None:
    settle(engine, snapshot := Snapshot())
    before = snapshot.xds[GATEWAY, CLUSTER, HOP]
    assert before.expires == END_TIME
    engine.apply(keyed(mk_waiver("a/w", "All", "2026-11-21T12:00:00Z")))
    update = engine.settle()
    ((_, after),) = ((name, change) for name, change in update.xds[GATEWAY][CLUSTER].items() if name == HOP)
    assert isinstance(after, Resource)
    assert (after.body, after.expires) == (before.body, END_TIME + 86400)
    assert update.xds[GATEWAY].keys() == {CLUSTER}


def test_a_changed_setting_of_the_operator_takes_effect_at_once(engine: Engine) -> None:
    settle(engine, Snapshot())
    engine.apply(keyed(mk_profile("a/f", backendTLS={"waivers": "Deny"})))
    assert engine.settle().xds[GATEWAY][CLUSTER][HOP] == Withdrawal(urgent=True)


def test_every_hop_is_reported_as_it_is_spoken_to(engine: Engine) -> None:
    engine.apply(
        keyed(
            *(mk_service(f"a/{name}") for name in ("ca", "pinned", "exact", "plain", "lost", "failing")),
            mk_route(
                "a/r", "a/g", [{"name": n, "port": 443} for n in ("s", "ca", "pinned", "exact", "plain", "lost", "failing")]
            ),
            mk_config_map("a/c", ca_pem("good")),
            mk_pin_set("a/n", "ab" * 32),
            mk_pin_set("a/x", certificates=[ca_pem("good")]),
            mk_policy("a/ca", "ca", "api.example", ["c"]),
            mk_policy("a/pinned", "pinned", "api.example", [own_ref("PinSet", "n")]),
            mk_policy("a/exact", "exact", "api.example", [own_ref("PinSet", "x")]),
            mk_policy("a/lost", "lost", "api.example", ["c"], section="nowhere"),
            mk_policy("a/failing", "failing", "api.example", ["nowhere"]),
        )
    )
    settle(engine, Snapshot())
    hops = {hop.backend.path: hop for hop in engine.hops()}
    assert read(document(Audit(tuple(hops.values()), ()))).hops == tuple(hops.values())
    assert {service: (hop.manner, hop.source) for service, hop in hops.items()} == {
        "a/s": ("waived", ""),
        "a/ca": ("verified", "CA"),
        "a/pinned": ("pinned only", ""),
        "a/exact": ("verified", "pinned"),
        "a/plain": ("plaintext", ""),
        "a/lost": ("failing closed", ""),
        "a/failing": ("failing closed", ""),
    }
    waived = hops["a/s"]
    waiver = Key("VerificationWaiver", "a", "w")
    assert (waived.waiver, waived.waives, waived.why, waived.until) == (waiver, "WaivedAll", "for now", END_TIME)
    assert hops["a/lost"].detail.startswith(
        "BackendTLSPolicy a/lost does not match its target: Service a/lost has no port named nowhere"
    )
    assert "nowhere does not exist" in hops["a/failing"].detail


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        ("ab" * 32, b"\xab" * 32),
        ("AB" * 32, b"\xab" * 32),
        (":".join(["aB"] * 32), b"\xab" * 32),
        ("q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", b"\xab" * 32),
        ("ab" * 20, None),
        ("ab" * 31 + "a", None),
        ("q6urq6urq6urq6urq6urq6urq6s=", None),
        ("q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s", None),
        ("", None),
        ("ä" * 64, None),
    ],
)
def test_a_pin_is_the_same_pin_however_it_is_written(value: str, digest: bytes | None) -> None:
    assert digest_of(Pin("SPKI", value)) == digest


def test_other_hashes_than_sha_256_are_no_pins() -> None:
    assert digest_of(Pin("SPKI", "ab" * 32, "SHA1")) is None


def test_a_pin_set_that_admission_would_refuse_fails_the_policy(engine: Engine) -> None:
    """An API server may hold objects that are older than its CRD."""
    both = mk_pin_set("a/both", "9MWSei9BgtkqpXxhOxn9hekrUNufXik45PXnm02BxJ0=", certificates=[ca_pem("leaf")])
    engine.apply(keyed(both, mk_policy("a/p", "s", "api.example", [own_ref("PinSet", "both")])))
    snapshot = Snapshot()
    settle(engine, snapshot)
    assert (GATEWAY, CLUSTER, HOP) not in snapshot.xds
    assert "pins and certificates together need CAs" in repr(snapshot.status[POLICY])
