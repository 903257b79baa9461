"""The combination of a class's profile and a Gateway's profile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lasthop.base.api import crds
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import (
    ESCAPED_SLASHES,
    UNDERSCORES,
    Autoscaling,
    HTTPProfile,
    LimitsProfile,
    ProxySettings,
    ServiceSettings,
)
from lasthop.engine.engine import Engine
from lasthop.engine.plan.limits import FIELDS, REGEX_CEILING, Limits, ceiling, floor
from lasthop.engine.plan.profile import NOTHING, BackendRules, HttpRules
from lasthop.engine.plan.upstream import ConnectRules
from lasthop.engine.resolve.gateways.profiles import (
    LONGEST_HANDSHAKE,
    LONGEST_IDLE,
    backend_rules,
    connect_rules,
    http_rules,
    limits,
    proxy_profile,
    proxy_settings,
)
from tests.world import keyed, mk, mk_class, mk_gateway, mk_profile, profile_ref

GATEWAY = Key("Gateway", "a", "g")


def engine(of_class: dict[str, Any] | None, own: dict[str, Any] | None) -> Engine:
    """Makes a Gateway with a class's profile and its own profile, if given."""
    built = Engine()
    more: dict[str, Any] = {"infrastructure": {"parametersRef": profile_ref("own")}} if own is not None else {}
    gateway_class = mk(
        "GatewayClass", "lasthop", spec={"controllerName": "x", "parametersRef": profile_ref("of-class", "ops")}
    )
    built.apply(keyed(gateway_class if of_class is not None else mk_class(), mk_gateway("a/g", **more)))
    built.apply(keyed(mk_profile("ops/of-class", **(of_class or {})), mk_profile("a/own", **(own or {}))))
    return built


def rules(of_class: dict[str, Any] | None, own: dict[str, Any] | None) -> BackendRules:
    return backend_rules(engine(of_class, own).graph, GATEWAY)


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
def test_a_gateway_may_only_tighten_the_rules_of_its_class_for_waivers(
    of_class: dict[str, Any] | None, own: dict[str, Any] | None, waivers: bool
) -> None:
    merged = rules(of_class and {"backendTLS": of_class}, own and {"backendTLS": own})
    assert merged.waivers is waivers


def test_the_stricter_one_of_two_limits_applies() -> None:
    strict = {"backendTLS": {"maxWaiverDays": 7, "plaintextBackends": "Deny", "pinnedOnly": "Deny", "minTLSVersion": "1.3"}}
    lax = {"backendTLS": {"maxWaiverDays": 30, "plaintextBackends": "Allow", "pinnedOnly": "Allow", "minTLSVersion": "1.2"}}
    for merged in (rules(strict, lax), rules(lax, strict), rules(strict, {}), rules({}, strict)):
        assert (merged.max_waiver_days, merged.plaintext, merged.min_version) == (7, "Deny", "1.3")
        assert not merged.pinned_only
    assert rules(lax, None) == BackendRules(max_waiver_days=30, min_version="1.2", profiles=("ops/of-class",))


@pytest.mark.parametrize(
    ("of_class", "own", "plaintext"),
    [
        ("", "", "Allow"),
        ("Declared", "", "Declared"),
        ("Declared", "Allow", "Declared"),
        ("Declared", "Deny", "Deny"),
        ("Deny", "Declared", "Deny"),
        ("Allow", "Declared", "Declared"),
        ("", "SomethingNew", "Deny"),
    ],
)
def test_the_strictest_rule_for_plaintext_applies_and_an_unknown_value_denies(of_class: str, own: str, plaintext: str) -> None:
    merged = rules({"backendTLS": {"plaintextBackends": of_class}}, {"backendTLS": {"plaintextBackends": own}})
    assert merged.plaintext == plaintext


def test_the_lower_limit_applies_and_a_gateway_may_raise_limits_that_its_class_does_not_set() -> None:
    def found(of_class: dict[str, int] | None, own: dict[str, int] | None) -> Limits:
        return limits(engine(of_class and {"limits": of_class}, own and {"limits": own}).graph, GATEWAY)

    assert found(None, None) == Limits()
    assert found({"retryAttempts": 5}, {"retryAttempts": 50}) == Limits(retry_attempts=5)
    assert found({"retryAttempts": 50}, {"retryAttempts": 5}) == Limits(retry_attempts=5)
    assert found(None, {"regexProgramSize": 4000}) == Limits(regex_program_size=4000)
    assert found({"retryAttempts": 0}, {"caCertificates": 7}) == Limits(retry_attempts=0, ca_certificates=7)


def test_the_stricter_http_rules_apply() -> None:
    def found(of_class: dict[str, Any] | None, own: dict[str, Any] | None) -> HttpRules:
        return http_rules(engine(of_class and {"http": of_class}, own and {"http": own}).graph, GATEWAY)

    lax = {"escapedSlashes": "KeepUnchanged", "mergeSlashes": False, "underscoresInHeaders": "Allow", "idleSeconds": 3600}
    strict = {
        "escapedSlashes": "RejectRequest",
        "mergeSlashes": True,
        "underscoresInHeaders": "RejectRequest",
        "idleSeconds": 5,
    }
    assert found(None, None) == HttpRules()
    assert found(None, lax) == HttpRules("KeepUnchanged", False, "Allow", 3600)
    for both in (found(lax, strict), found(strict, lax)):
        assert both == HttpRules("RejectRequest", True, "RejectRequest", 5)
    odd = {"escapedSlashes": "Maybe", "underscoresInHeaders": "?", "idleSeconds": -1, "handshakeSeconds": 1 << 40}
    assert found(None, odd) == HttpRules(idle_seconds=1, handshake_seconds=300)


def test_the_crd_has_the_words_for_how_requests_are_read_and_their_defaults() -> None:
    kind = KINDS["GatewayProfile"]
    schema = crds.schema(kind, kind.versions[0], "standard")["properties"]["spec"]["properties"]["http"]["properties"]
    assert tuple(schema["escapedSlashes"]["enum"]) == ESCAPED_SLASHES
    assert tuple(schema["underscoresInHeaders"]["enum"]) == UNDERSCORES
    assert schema["idleSeconds"]["maximum"] == LONGEST_IDLE
    assert schema["handshakeSeconds"]["maximum"] == LONGEST_HANDSHAKE
    for field in msgspec.structs.fields(HttpRules):
        name = next(f.encode_name for f in msgspec.structs.fields(HTTPProfile) if f.name == field.name)
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        assert f"Defaults to {default}" in " ".join(schema[name]["description"].split())


def test_a_profile_that_nothing_has_validated_cannot_leave_the_bounds_of_a_limit() -> None:
    written = {"regexProgramSize": 1 << 40, "matchesPerHostname": -3}
    assert limits(engine(None, {"limits": written}).graph, GATEWAY) == Limits(
        regex_program_size=REGEX_CEILING, matches_per_hostname=1
    )


def test_the_crd_has_every_limit_with_its_bounds_and_default() -> None:
    kind = KINDS["GatewayProfile"]
    schema = crds.schema(kind, kind.versions[0], "standard")["properties"]["spec"]["properties"]["limits"]["properties"]
    assert {name: (field["minimum"], field["maximum"]) for name, field in schema.items()} == {
        field.encode_name: (floor(name), ceiling(name)) for name, field in FIELDS.items()
    }
    for name, field in FIELDS.items():
        assert f" Defaults to {field.default}" in schema[field.encode_name]["description"], name
        assert floor(name) <= field.default <= ceiling(name)
    assert [f.encode_name for f in msgspec.structs.fields(LimitsProfile)] == [f.encode_name for f in FIELDS.values()]


def test_external_names_default_by_the_way_of_running() -> None:
    assert rules({}, {}).external_names is None
    assert rules({"externalNameServices": "Allow"}, {}).external_names is True
    assert rules({"externalNameServices": "Allow"}, {"externalNameServices": "Deny"}).external_names is False


def test_where_pods_run_is_passed_on_as_it_is_written() -> None:
    toleration = {"operator": "Exists", "key": "edge"}
    written = {"pod": {"tolerations": [toleration], "affinity": {"a": [1, "b"]}}, "autoscaling": {"maxReplicas": 4}}
    first, second = (proxy_settings(engine({"proxy": written}, {"proxy": {"replicas": 2}}).graph, GATEWAY) for _ in range(2))
    assert [toleration_of_pod.value for toleration_of_pod in first.pod.tolerations] == [toleration]
    assert first.pod.affinity is not None
    assert first.pod.affinity.value == {"a": [1, "b"]}
    assert first.autoscaling == Autoscaling(max_replicas=4)
    assert first == second
    assert hash(first) == hash(second)


def test_the_gateways_own_proxy_settings_apply_field_by_field() -> None:
    of_class = {"proxy": {"replicas": 3, "drainSeconds": 5, "service": {"type": "NodePort", "externalTrafficPolicy": "Local"}}}
    own = {"proxy": {"replicas": 1, "service": {"type": "ClusterIP"}}}
    settings = proxy_settings(engine(of_class, own).graph, GATEWAY)
    assert settings == ProxySettings(replicas=1, drain_seconds=5, service=ServiceSettings("ClusterIP"))
    assert proxy_settings(engine(None, None).graph, GATEWAY) == ProxySettings()
    assert proxy_profile(engine({"proxy": {"drainSeconds": 0}}, None).graph, GATEWAY).drain_seconds == 0
    assert proxy_settings(engine({"proxy": {"drainSeconds": 0}}, None).graph, GATEWAY).drain_seconds == 0


def test_the_gateways_own_rules_for_failing_endpoints_apply_within_bounds() -> None:
    def found(of_class: dict[str, int], own: dict[str, int]) -> ConnectRules:
        return connect_rules(engine({"proxy": of_class}, {"proxy": own}).graph, GATEWAY)

    assert found({}, {}) == ConnectRules(retries=1, ejection_seconds=30)
    assert found({"connectRetries": 0}, {}) == ConnectRules(retries=0)
    assert found({"connectRetries": 0, "ejectionSeconds": 0}, {"connectRetries": 5}) == ConnectRules(5, 0)
    assert found({"connectRetries": -1}, {"ejectionSeconds": 10**9}) == ConnectRules(0, 3600)


def test_where_a_profile_is_missing_nothing_is_permitted() -> None:
    built = engine({"backendTLS": {"waivers": "Allow"}}, {})
    built.apply({Key("GatewayProfile", "a", "own"): None})
    assert backend_rules(built.graph, GATEWAY) == NOTHING
