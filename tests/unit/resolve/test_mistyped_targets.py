"""A target whose kind or name is impossible fails closed, as one whose port does not exist does."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from tests.snapshot import settled
from tests.world import STORE, keyed, mk_class, mk_gateway, mk_policy, mk_route, mk_service

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
        *({"group": group} for group in ("v1", "core/v1", "Core")),
        *({"name": name} for name in ("b,", "b ", "'b'", "B")),
        {"kind": "Servce", "name": "b,"},
    ],
    ids=str,
)
def test_a_mistyped_target_closes_the_ports_of_the_service_that_it_means(target: dict[str, str]) -> None:
    found = hop(target)
    assert isinstance(found, Refused) and found.source == Key("BackendTLSPolicy", "a", "p")
    assert "Service a/b is probably meant" in found.problem.text


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
