"""Policies without a trust source, or with two: admission refuses them, but an API server may still store some."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan import reasons
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.settings import SYSTEM_STORE
from tests.snapshot import Snapshot, settle, tls_context
from tests.world import (
    NOW,
    ca_pem,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_profile,
    mk_route,
    mk_service,
    mk_waiver,
    own_ref,
    profile_ref,
)

POLICY = Key("BackendTLSPolicy", "a", "p")
HOP = (Key("Gateway", "a", "g"), "a/g/a/s/443/auto")
REFS = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
WAIVER = own_ref("VerificationWaiver", "names")


def settled(**trust: Any) -> tuple[Engine, Snapshot]:
    engine, snapshot = Engine(now=NOW.timestamp()), Snapshot()
    SYSTEM_STORE.set(engine.graph, SystemStore("/system.pem", "digest"))
    target = {"group": "", "kind": "Service", "name": "s"}
    spec = {"targetRefs": [target], "validation": {"hostname": "api.example", **trust}}
    engine.apply(
        keyed(
            mk_class(),
            mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
            mk_profile("a/f", backendTLS={"waivers": "Allow"}),
            mk_waiver("a/names", "Names"),
            mk_service("a/s"),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
            mk_config_map("a/ca", ca_pem("ca")),
            mk("BackendTLSPolicy", "a/p", spec=spec),
        )
    )
    settle(engine, snapshot)
    return engine, snapshot


@pytest.mark.parametrize(
    "trust, message",
    [
        ({}, "no CAs are configured; set caCertificateRefs, or wellKnownCACertificates: System"),
        (
            {"caCertificateRefs": [], "wellKnownCACertificates": ""},
            "no CAs are configured; set caCertificateRefs, or wellKnownCACertificates: System",
        ),
        (
            {"caCertificateRefs": REFS, "wellKnownCACertificates": "System"},
            "caCertificateRefs and wellKnownCACertificates exclude each other; remove one of them",
        ),
        (
            {"caCertificateRefs": [WAIVER], "wellKnownCACertificates": "System"},
            "caCertificateRefs and wellKnownCACertificates exclude each other; remove one of them",
        ),
    ],
)
def test_none_or_two_trust_sources_fail_closed(trust: dict[str, Any], message: str) -> None:
    engine, snapshot = settled(**trust)
    judged = judgement(engine.graph, POLICY)
    assert judged is not None
    assert judged.tls is None
    assert judged.problem is not None
    assert (judged.problem.reason, judged.problem.text) == (reasons.INVALID, message)
    assert HOP not in snapshot.clusters()


@pytest.mark.parametrize(
    "trust, source",
    [
        ({"caCertificateRefs": REFS, "wellKnownCACertificates": ""}, "inline_bytes"),
        ({"caCertificateRefs": [], "wellKnownCACertificates": "System"}, "filename"),
    ],
)
def test_an_empty_source_beside_another_is_as_none(trust: dict[str, Any], source: str) -> None:
    _, snapshot = settled(**trust)
    context: Any = tls_context(snapshot.clusters()[HOP])
    assert context.common_tls_context.validation_context.trusted_ca.WhichOneof("specifier") == source
