"""A target whose kind or name is impossible fails closed, as one whose port does not exist does."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.kinds import MULTICLUSTER_API
from lasthop.base.api.meta import Key, ObjectMeta
from lasthop.base.api.policies import PolicyTargetReference, RejectedPolicy
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.targets import missed_targets
from tests.snapshot import settled
from tests.world import STORE, keyed, mk_class, mk_gateway, mk_policy, mk_route, mk_service, mk_service_import

GATEWAY, SERVICE = Key("Gateway", "a", "g"), Key("Service", "a", "b")


def hop(target: dict[str, Any], *more: Any, app_protocol: str = "", service: str = "b") -> object:
    port = {"name": "web", "port": 80, **({"appProtocol": app_protocol} if app_protocol else {})}
    policy = mk_policy("a/p", "b", "b.example", targets=[{"group": "", "kind": "Service", "name": "b", **target}])
    world = (mk_class(), mk_gateway("a/g"), mk_service(f"a/{service}", [port]), policy, *more)
    route = mk_route("a/r", "a/g", [{"name": service, "port": 80}])
    engine, _ = settled(keyed(*world, route), store=STORE)
    return hop_tls(engine.graph, GATEWAY, SERVICE._replace(name=service), 80, Protocol.AUTO)


@pytest.mark.parametrize(
    "target",
    [
        *({"kind": kind} for kind in ("Servce", "Services", "service", "Service |", "SVC Service")),
        *({"group": group} for group in ("v1", "core/v1", "Core", "gateway.networking.k8s.io", "lasthop.dev", "k8s.io")),
        *({"name": name} for name in ("b,", "b ", "'b'", "B", "a/b/", "b/web", "b%20", "b#web", "b@a", "x y, b")),
        {"kind": "Servce", "name": "b,"},
    ],
    ids=str,
)
def test_a_mistyped_target_closes_the_ports_of_the_service_that_it_means(target: dict[str, str]) -> None:
    tls = hop(target)
    assert isinstance(tls, Refused) and tls.source == Key("BackendTLSPolicy", "a", "p")
    assert "Service a/b is probably meant" in tls.problem.text


PLACEHOLDERS = (
    "${SERVICE}",
    "$(SERVICE)",
    "$SERVICE",
    "{{ .Values.service }}",
    "<service>",
    "ENC[AES256_GCM,data:x,type:str]",
)


@pytest.mark.parametrize("service", ["b", "c"])
@pytest.mark.parametrize("name", ["b,c", "c b", "*", "b*,c*", "*.a.svc", "a/*", *PLACEHOLDERS])
def test_a_name_that_means_several_services_closes_each(name: str, service: str) -> None:
    assert isinstance(hop({"name": name}, service=service), Refused)


def test_a_group_of_another_kind_of_service_closes_both() -> None:
    target = {"group": MULTICLUSTER_API, "kind": "Service"}
    tls = hop(target)
    assert isinstance(tls, Refused) and "Service a/b is probably meant" in tls.problem.text
    engine, _ = settled(keyed(mk_policy("a/p", "b", "b.example", targets=[{"name": "b", **target}]), mk_service_import("a/b")))
    assert missed_targets(engine.graph, Key("ServiceImport", "a", "b"))


@pytest.mark.parametrize("target", [{"name": "b*"}, {"name": "*b"}, {"name": "c*b"}, {"name": "b-${X}"}])
def test_a_wildcard_closes_only_services_that_match(target: dict[str, str]) -> None:
    assert isinstance(hop(target, service="other"), Plaintext)


@pytest.mark.parametrize("target", [{"kind": "Servce"}, {"name": "b,"}, {"name": "*"}])
def test_a_policy_that_cannot_be_fully_decoded_closes_what_its_mistyped_target_means(target: dict[str, str]) -> None:
    """As in a cluster whose CRD has fields of a later version."""
    refs = (PolicyTargetReference(**{"group": "", "kind": "Service", "name": "b", **target}),)
    assert isinstance(hop({"name": "c"}, RejectedPolicy(ObjectMeta("q", "a"), refs, "unknown field")), Refused)


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "Gateway"},
        {"kind": "ServiceEntry", "group": "networking.istio.io"},
        {"group": "serving.knative.dev"},
        {"name": "c"},
        {"name": "c,"},
        {"kind": "ServiceImports"},
    ],
    ids=str,
)
def test_an_object_of_another_system_or_a_possible_name_closes_nothing(target: dict[str, str]) -> None:
    assert isinstance(hop(target), Plaintext)


def test_a_port_that_declares_a_plaintext_protocol_stays_open() -> None:
    assert isinstance(hop({"kind": "Servce"}, app_protocol="http"), Plaintext)


def test_a_policy_that_names_the_port_decides() -> None:
    assert isinstance(hop({"kind": "Servce"}, mk_policy("a/q", "b", "b.example")), BackendTLS)


def test_it_closes_no_other_service() -> None:
    assert isinstance(hop({"kind": "Servce"}, service="other"), Plaintext)
