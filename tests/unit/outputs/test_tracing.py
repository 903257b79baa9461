"""Tracing for Envoy: the Gateways of a policy, the effects of an edit, and the samplers for shares."""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec
import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import AncestorReference, ForeignPolicyStatus, PolicyAncestorStatus
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES
from lasthop.engine.outputs.envoy.sampling import sampled_pattern, sampler
from lasthop.engine.outputs.envoy.tracing import COMMANDS
from lasthop.engine.plan.telemetry import SAMPLED
from lasthop.engine.resolve.gateways.telemetry import KNOWN_ATTRIBUTES, MAX_ATTRIBUTES
from tests.snapshot import Snapshot, settle, settled
from tests.world import (
    STREAMS,
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_service,
    mk_telemetry_policy,
)

OTEL = {"name": "otel", "port": 4317}
HTTP = {"name": "http", "port": 8080, "protocol": "HTTP"}


def world(*objects: Object) -> tuple[Engine, Snapshot]:
    """Two Gateways of one namespace and one of another, and a collector."""
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/first", [HTTP, *(stream for stream in STREAMS if stream["protocol"] in ("TCP", "UDP"))]),
            mk_gateway("a/second"),
            mk_gateway("b/first"),
            mk_service("a/otel", [{"name": "otlp", "port": 4317}]),
            mk_config_map("a/ca", ca_pem("good")),
            *objects,
        )
    )


def touched(before: Snapshot, engine: Engine, *objects: Object) -> set[tuple[str, str]]:
    """Returns (type, name) of each resource that an edit changes."""
    old = {key: resource.version for key, resource in before.xds.items()}
    engine.apply(keyed(*objects))
    settle(engine, before)
    new = {key: resource.version for key, resource in before.xds.items()}
    return {(type, name) for (_, type, name), _ in old.items() ^ new.items()}


def test_a_policy_touches_only_the_listeners_for_requests_of_the_gateway_that_it_names() -> None:
    engine, snapshot = world()
    changed = touched(snapshot, engine, mk_telemetry_policy("a/traces", ["first"], OTEL))
    assert {name for type, name in changed if type == LISTENER} == {"a/first/8080"}
    assert {name for type, name in changed if type == CLUSTER} == {"a/first/a/otel/4317/h2"}
    assert not {name for type, name in changed if type == ROUTES}


def test_how_the_collector_is_verified_and_whether_it_exists_touches_no_listener() -> None:
    engine, snapshot = world(mk_telemetry_policy("a/traces", ["first"], OTEL))
    for edit in (
        mk_policy("a/p", "otel", "otel.example", ["ca"]),
        mk_policy("a/p", "otel", "otel.example", ["missing"]),
        mk_config_map("a/ca", ca_pem("other")),
        mk_service("a/otel", [{"name": "otlp", "port": 1}]),
    ):
        assert LISTENER not in {type for type, _ in touched(snapshot, engine, edit)}


def test_the_gateway_that_finds_no_room_in_the_status_traces_nothing() -> None:
    policy = mk_telemetry_policy("a/traces", ["first", "second"], OTEL)
    assert isinstance(policy, XTelemetryPolicy)
    entries = tuple(PolicyAncestorStatus(AncestorReference(f"other-{n}"), "foreign.example/x") for n in range(15))
    engine, snapshot = world(msgspec.structs.replace(policy, status=ForeignPolicyStatus(entries)))
    assert {name for _, name in snapshot.clusters()} == {"a/first/a/otel/4317/h2"}
    assert any("no free entry for Gateway a/second" in finding.message for finding in engine.findings())


@pytest.mark.parametrize(
    "tracing",
    [
        {"samplingRate": {"numerator": 2, "denominator": 1}},
        {"samplingRate": {"numerator": 1, "denominator": 0}},
        {"parentBasedSampling": {"mode": "Perhaps"}},
        {"serviceName": "%REQ(x)%"},
        {"spanName": "a  b"},
        {"spanName": "%REQ(x)%"},
        {"attributes": [{"name": "a", "sourceType": "Literal", "literalValue": "a\nb"}]},
        {"attributes": [{"name": "%", "sourceType": "Literal", "literalValue": "a"}]},
        {"attributes": [{"name": "a", "sourceType": "Header", "headerName": ":path"}]},
        {"attributes": [{"name": "a", "sourceType": "Environment"}]},
        {"attributes": [{"name": f"a{n}", "sourceType": "Literal", "literalValue": "a"} for n in range(MAX_ATTRIBUTES + 1)]},
        {"provider": {"headers": [{"name": "grpc-timeout", "value": "1S"}]}},
        {"provider": {"headers": [{"name": "x-a", "value": "100%"}]}},
        {"provider": {"headers": [{"name": "x-a", "value": "a\r\nb: c"}]}},
        {"provider": {"headers": [{"name": "x-a", "value": "a" * 5_000}]}},
        {"provider": {"headers": [{"name": f"x-{n}", "value": "a"} for n in range(17)]}},
    ],
    ids=lambda tracing: str(tracing)[:40],
)
def test_unsupported_telemetry_disables_tracing_and_serves_all_requests(tracing: dict[str, Any]) -> None:
    engine, snapshot = world()
    assert touched(snapshot, engine, mk_telemetry_policy("a/traces", ["first"], OTEL, **tracing)) == set()
    status: Any = snapshot.status[Key("XTelemetryPolicy", "a", "traces")]
    (accepted,) = status.ancestors[0].conditions
    assert (accepted.type, accepted.status, accepted.reason) == ("Accepted", "False", "Invalid")


def test_every_attribute_that_is_known_has_a_command_of_envoy() -> None:
    assert set(COMMANDS) == KNOWN_ATTRIBUTES


@pytest.mark.parametrize(
    "share, parents, name",
    [(SAMPLED, SAMPLED, "parent_based"), (0, None, "trace_id_ratio_based"), (5, 0, "cel"), (SAMPLED, 1, "cel")],
)
def test_envoys_own_samplers_are_used_where_they_can_say_it(share: int, parents: int | None, name: str) -> None:
    assert sampler(share, parents).name.rpartition(".")[2] == name


@pytest.mark.parametrize("share", [0, 1, 1_000, 250_000, 333_333, 500_000, 999_000, 999_999])
def test_the_pattern_for_sampled_traces_matches_its_share_and_no_trace_that_is_not_sampled(share: int) -> None:
    pattern, dice = sampled_pattern(share), random.Random(share)
    ids = [f"{number:03x}" for number in range(4096)]
    sampled = [re.search(pattern, f"00-{dice.randbytes(15).hex()[:29]}{end}-{'b' * 16}-01") for end in ids]
    expected = max(round(4096 * share / SAMPLED), 1 if share else 0)
    assert sum(rate is not None for rate in sampled) == expected
    assert all(rate is not None for rate in sampled[:expected])
    assert not any(re.search(pattern, f"00-{'a' * 29}{end}-{'b' * 16}-00") for end in ids)
