"""CA bundles: how large they may be at a Gateway, and that no certificate is held or sent more often than needed."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan.tls import Anchors
from lasthop.engine.resolve.gateways.frontend import frontend
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.trust.certificates import SOON, parse_bundle
from lasthop.engine.resolve.trust.trust import day, minute
from lasthop.engine.store.graph import BEFORE
from tests.snapshot import Snapshot, settle, settled, tls_context
from tests.world import (
    NOW,
    ca_pem,
    crl_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    profile_ref,
)

BOTH = ca_pem("one") + ca_pem("two")
DAY = 86400.0
PARENTS = [{"name": "strict"}, {"name": "usual"}]


def running(limits: dict[str, int], *objects: Any) -> tuple[Engine, Snapshot]:
    """A hop from two Gateways; one has these limits."""
    listener = {"name": "http", "port": 81, "protocol": "HTTP"}
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/strict", infrastructure={"parametersRef": profile_ref("f")}),
            mk_gateway("a/usual", [listener]),
            mk_profile("a/f", limits=limits),
            mk_service("a/s"),
            mk_route("a/r", "", [{"name": "s", "port": 443}], parents=PARENTS),
            mk_config_map("a/ca", BOTH),
            mk_policy("a/p", "s", "api.example", ["ca"]),
            *objects,
        )
    )


def accepted(snapshot: Snapshot) -> dict[str, tuple[str, str, str]]:
    status: Any = snapshot.status[Key("BackendTLSPolicy", "a", "p")]
    by_gateway = {entry.ancestor_ref.name: entry.conditions[0] for entry in status.ancestors}
    return {name: (condition.status, condition.reason, condition.message) for name, condition in by_gateway.items()}


@pytest.mark.parametrize(
    "limits, message",
    [
        (
            {"caCertificates": 1},
            "it refers to 2 CA certificates; the limit is 1; use less, or raise spec.limits.caCertificates (up to 10,000) in "
            "the Gateway's GatewayProfile",
        ),
        (
            {"caBundleBytes": 500},
            f"its CA certificates have {len(BOTH):,} bytes; the limit is 500; use less, or raise spec.limits.caBundleBytes "
            "(up to 16,777,216) in the Gateway's GatewayProfile",
        ),
    ],
)
def test_a_bundle_above_a_gateways_limit_fails_closed_there_and_nowhere_else(limits: dict[str, int], message: str) -> None:
    _, snapshot = running(limits)
    assert accepted(snapshot) == {"strict": ("False", "Invalid", message), "usual": ("True", "Accepted", "")}
    assert {gateway.name for gateway, _ in snapshot.clusters()} == {"usual"}


def test_a_bundle_at_the_limit_is_used() -> None:
    _, snapshot = running({"caCertificates": 2, "caBundleBytes": len(BOTH)})
    assert {gateway.name for gateway, _ in snapshot.clusters()} == {"strict", "usual"}


def test_client_cas_above_the_limit_close_the_listener() -> None:
    ref = {"group": "", "kind": "ConfigMap", "name": "ca"}
    tls = {"frontend": {"default": {"validation": {"caCertificateRefs": [ref]}}}}
    asks = mk_gateway("a/strict", infrastructure={"parametersRef": profile_ref("f")}, tls=tls)
    engine, _ = running({"caCertificates": 1}, asks)
    plan = frontend(engine.graph, Key("Gateway", "a", "strict"), 443)
    assert plan.clients is None
    assert plan.accepted and not plan.accepted.status
    assert plan.resolved and "the limit is 1" in plan.resolved.message


def test_a_certificate_in_several_bundles_is_sent_once() -> None:
    more = mk_config_map("a/more", ca_pem("two") + ca_pem("three") + ca_pem("two"))
    policy = mk_policy("a/p", "s", "api.example", ["ca", "more"])
    _, snapshot = running({"caCertificates": 3}, more, policy)
    context: Any = tls_context(snapshot.clusters()[Key("Gateway", "a", "strict"), "a/strict/a/s/443/auto"])
    trusted = context.common_tls_context.validation_context.trusted_ca.inline_bytes.decode()
    assert trusted == ca_pem("one") + ca_pem("two") + ca_pem("three")


def test_a_bundle_that_is_written_as_one_in_use_is_that_one() -> None:
    plain, listed = parse_bundle(BOTH.encode()), parse_bundle(BOTH.encode(), crl_pem("one").encode())
    assert parse_bundle(f"# a copy\n{BOTH}".encode()) is parse_bundle(BOTH.encode()) is plain
    assert parse_bundle(BOTH.encode(), crl_pem("one").encode()) is listed
    assert parse_bundle((BOTH + crl_pem("one")).encode()) is plain


def test_time_decides_the_findings_of_each_certificate() -> None:
    engine, snapshot = running({}, mk_config_map("a/ca", ca_pem("first", 100) + ca_pem("second", 400, 20)))
    by_days = {}
    for days in (0, 30, 75, 110, 375, 410):
        engine.advance(NOW.timestamp() + days * DAY)
        settle(engine, snapshot)
        by_days[days] = accepted(snapshot)["usual"]
    place = "in ConfigMap ca"
    assert by_days == {
        0: ("True", "Accepted", f"CA second {place} is not valid before {minute(NOW.timestamp() + 20 * DAY)}"),
        30: ("True", "Accepted", ""),
        75: ("True", "Accepted", f"CA first {place} expires on {day(NOW.timestamp() + 100 * DAY)}"),
        110: ("True", "Accepted", f"CA first {place} expired on {day(NOW.timestamp() + 100 * DAY)}"),
        375: (
            "True",
            "Accepted",
            f"CA first {place} expired on {day(NOW.timestamp() + 100 * DAY)}; "
            f"CA second {place} expires on {day(NOW.timestamp() + 400 * DAY)}",
        ),
        410: ("False", "NoValidCACertificate", by_days[410][2]),
    }


def test_a_bundle_that_is_valid_for_long_waits_for_one_moment() -> None:
    engine, _ = running({}, mk_config_map("a/ca", ca_pem("first", 100) + ca_pem("second", 400, -20)))
    deadlines = {id[1] - NOW.timestamp() for id in engine.graph.nodes if id[0] is BEFORE}
    assert deadlines == {-20 * DAY, 100 * DAY - SOON.total_seconds()}


def test_the_same_content_in_another_namespace_is_held_once() -> None:
    copies = (
        mk_config_map("b/ca", f"# a copy\n{BOTH}"),
        mk_service("b/s"),
        mk_policy("b/p", "s", "api.example", ["ca"]),
    )
    engine, _ = running({}, *copies)
    judged = (judgement(engine.graph, Key("BackendTLSPolicy", namespace, "p")) for namespace in "ab")
    one, other = (frontend_plan.tls for frontend_plan in judged if frontend_plan)
    assert one and other
    assert isinstance(one.trust, Anchors) and isinstance(other.trust, Anchors)
    assert one.trust.pem is other.trust.pem
