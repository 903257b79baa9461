"""Revocation lists beside CAs: time decides whether they are usable, and they are part of the trust."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.base.pki.parse import Unreadable
from lasthop.base.pki.revocation import revocation_lists
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.certificates import Role
from lasthop.engine.outputs.envoy.resource import CLUSTER
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

GATEWAY, POLICY = Key("Gateway", "a", "g"), Key("BackendTLSPolicy", "a", "p")
HOP = "a/g/a/s/443/auto"
DAY = 86400.0


def running(crl: str, **profile: Any) -> tuple[Engine, Snapshot]:
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
            mk_profile("a/f", **profile),
            mk_service("a/s"),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
            mk_config_map("a/ca", ca_pem("good") + ca_pem("other"), crl),
            mk_policy("a/p", "s", "api.example", ["ca"]),
        )
    )


def said(snapshot: Snapshot) -> dict[str, tuple[str, str, str]]:
    status: Any = snapshot.status[POLICY]
    return {
        condition.type: (condition.status, condition.reason, condition.message) for condition in status.ancestors[0].conditions
    }


def test_a_list_is_used_until_the_next_one_is_due_and_fails_closed_from_then_on() -> None:
    engine, snapshot = running(crl_pem("good", 30))
    due = NOW.timestamp() + 30 * DAY
    context = tls_context(snapshot.clusters()[GATEWAY, HOP])
    assert context and context.common_tls_context.validation_context.crl.inline_bytes == crl_pem("good", 30).encode()
    assert not context.common_tls_context.validation_context.only_verify_leaf_cert_crl
    assert "is out of date" not in said(snapshot)["Accepted"][2]
    engine.advance(due - DAY)
    settle(engine, snapshot)
    assert "is out of date from" in said(snapshot)["Accepted"][2]
    engine.advance(due)
    settle(engine, snapshot)
    assert (GATEWAY, CLUSTER, HOP) not in snapshot.xds
    assert said(snapshot)["ResolvedRefs"][:2] == ("False", "RevocationListNotCurrent")
    assert said(snapshot)["Accepted"][:2] == ("False", "NoValidCACertificate")


def test_a_ca_without_a_list_beside_one_with_a_list_is_warned_of() -> None:
    _, snapshot = running(crl_pem("good"))
    assert "CA other in ConfigMap ca has no revocation list there" in said(snapshot)["Accepted"][2]


@pytest.mark.parametrize("ca", [ca_pem("good", -10), "garbage", None])
def test_a_list_beside_an_unusable_ca_is_not_left_out_with_it(ca: str | None) -> None:
    """The same CA may be there a second time, without a list."""
    engine, snapshot = running(crl_pem("good"))
    refs = mk_policy("a/p", "s", "api.example", ["ca", "again"])
    engine.apply(keyed(refs, mk_config_map("a/again", ca_pem("good")), mk_config_map("a/ca", ca, crl_pem("good"))))
    settle(engine, snapshot)
    assert (GATEWAY, CLUSTER, HOP) not in snapshot.xds
    assert said(snapshot)["Accepted"][:2] == ("False", "Invalid")
    engine.apply(keyed(mk_config_map("a/ca", ca)))
    settle(engine, snapshot)
    assert (GATEWAY, CLUSTER, HOP) in snapshot.xds


def test_lists_count_towards_the_limit_of_bytes() -> None:
    size = len(ca_pem("good") + ca_pem("other"))
    _, snapshot = running(crl_pem("good"), limits={"caBundleBytes": size + 10})
    assert "CA certificates and their revocation lists have" in said(snapshot)["Accepted"][2]


def test_the_audit_has_the_next_update_and_calls_it_due_two_days_before() -> None:
    engine, _ = running(crl_pem("good", 30))
    (report,) = (certificate for certificate in engine.certificates() if certificate.role is Role.REVOCATIONS)
    due = NOW.timestamp() + 30 * DAY
    assert (report.not_after, report.subject, report.users) == (due, "CN=good", (POLICY,))
    assert not report.due(due - 3 * DAY, 30)
    assert report.due(due - DAY, 30)


def test_other_content_differs_from_a_truncated_list() -> None:
    for text, words in (
        ("", "is empty"),
        (ca_pem("good"), "holds no PEM revocation list"),
        (crl_pem("good")[:-20], "is cut off"),
        (crl_pem("good").replace("M", "N"), "has a revocation list that cannot be read (PEM block 1 of 1)"),
    ):
        lists = revocation_lists(text.encode())
        assert isinstance(lists, Unreadable) and words in lists.message
    twice = revocation_lists((crl_pem("good") * 2 + "text").encode())
    assert not isinstance(twice, Unreadable) and len(twice) == 1
