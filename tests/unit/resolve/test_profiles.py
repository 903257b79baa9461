"""What the profile of a class and that of a Gateway come to together."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.api.meta import Key
from lasthop.api.profiles import ProxySettings, ServiceSettings
from lasthop.engine import Engine
from lasthop.plan.profile import NOTHING, BackendRules
from lasthop.resolve.profiles import backend_rules, proxy_profile, proxy_settings
from tests.world import keyed, mk, mk_class, mk_gateway, mk_profile, profile_ref

GATEWAY = Key("Gateway", "a", "g")


def engine(of_class: dict[str, Any] | None, own: dict[str, Any] | None) -> Engine:
    """A Gateway with a class's profile and one of its own, where there is one."""
    found = Engine()
    more = {"infrastructure": {"parametersRef": profile_ref("own")}} if own is not None else {}
    gateway_class = mk(
        "GatewayClass", "lasthop", spec={"controllerName": "x", "parametersRef": profile_ref("of-class", "ops")}
    )
    found.apply(keyed(gateway_class if of_class is not None else mk_class(), mk_gateway("a/g", **more)))
    found.apply(keyed(mk_profile("ops/of-class", **(of_class or {})), mk_profile("a/own", **(own or {}))))
    return found


def rules(of_class: dict[str, Any] | None, own: dict[str, Any] | None) -> BackendRules:
    return engine(of_class, own).graph.value(backend_rules, GATEWAY)


@pytest.mark.parametrize(
    ("of_class", "own", "waivers"),
    [
        (None, None, False),
        ({}, {}, False),
        ({"waivers": "Allow"}, None, True),
        (None, {"waivers": "Allow"}, True),
        ({}, {"waivers": "Allow"}, True),
        ({"waivers": "Allow"}, {}, True),
        ({"waivers": "Allow"}, {"waivers": "Deny"}, False),
        ({"waivers": "Deny"}, {"waivers": "Allow"}, False),
    ],
)
def test_a_gateway_may_only_tighten_what_its_class_says_of_waivers(
    of_class: dict[str, Any] | None, own: dict[str, Any] | None, waivers: bool
) -> None:
    found = rules(of_class and {"backendTLS": of_class}, own and {"backendTLS": own})
    assert found.waivers is waivers


def test_of_every_limit_the_stricter_one_holds() -> None:
    strict = {"backendTLS": {"maxWaiverDays": 7, "plaintextBackends": "Deny", "minTLSVersion": "1.3"}}
    lax = {"backendTLS": {"maxWaiverDays": 30, "plaintextBackends": "Allow", "minTLSVersion": "1.2"}}
    for found in (rules(strict, lax), rules(lax, strict), rules(strict, {}), rules({}, strict)):
        assert (found.max_waiver_days, found.plaintext, found.min_version) == (7, False, "1.3")
    assert rules(lax, None) == BackendRules(max_waiver_days=30, min_version="1.2", profiles=("ops/of-class",))


def test_external_names_are_as_the_way_of_running_has_it_unless_somebody_says() -> None:
    assert rules({}, {}).external_names is None
    assert rules({"externalNameServices": "Allow"}, {}).external_names is True
    assert rules({"externalNameServices": "Allow"}, {"externalNameServices": "Deny"}).external_names is False


def test_of_how_proxies_run_the_gateways_own_word_holds_field_by_field() -> None:
    of_class = {"proxy": {"replicas": 3, "drainSeconds": 5, "service": {"type": "NodePort", "externalTrafficPolicy": "Local"}}}
    own = {"proxy": {"replicas": 1, "service": {"type": "ClusterIP"}}}
    settings = engine(of_class, own).graph.value(proxy_settings, GATEWAY)
    assert settings == ProxySettings(replicas=1, drain_seconds=5, service=ServiceSettings("ClusterIP"))
    assert engine(None, None).graph.value(proxy_settings, GATEWAY) == ProxySettings()
    assert engine({"proxy": {"drainSeconds": 0}}, None).graph.value(proxy_profile, GATEWAY).drain_seconds == 0
    assert engine({"proxy": {"drainSeconds": 0}}, None).graph.value(proxy_settings, GATEWAY).drain_seconds == 0


def test_where_a_profile_is_missing_nothing_is_permitted() -> None:
    found = engine({"backendTLS": {"waivers": "Allow"}}, {})
    found.apply({Key("GatewayProfile", "a", "own"): None})
    assert found.graph.value(backend_rules, GATEWAY) == NOTHING
