"""Findings on XTelemetryPolicies."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from lasthop.base.api.meta import Key
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.engine.outputs.findings.policies import failing
from lasthop.engine.outputs.status.policies import policy_report
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.resolve.gateways.telemetry import (
    TELEMETRY,
    collector_problem,
    gateway_problem,
    tracing_problems,
    unknown_attributes,
)
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

COLLECTOR = "spec.tracing.provider.backendRef"


@query
def telemetry_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_policy(g, key)))


def _of_policy(g: Graph, key: Key) -> Iterator[Finding]:
    obj, reached = read(g, key, XTelemetryPolicy), TELEMETRY.ancestors(g, key)
    if obj is None:
        return
    for number, target in enumerate(obj.spec.target_refs):
        if problem := TELEMETRY.unsupported(key, target):
            yield problem.at(f"spec.targetRefs[{number}]").on(key)
    for gateway in reached.gateways:
        yield from _at_gateway(g, key, obj, gateway)
    for gateway in reached.without_room:
        message = f"its status has no room for {gateway}, which traces nothing."
        yield make_finding(key, reasons.INVALID, message, severity=Severity.WARNING, about=(gateway,))


def _at_gateway(g: Graph, key: Key, obj: XTelemetryPolicy, gateway: Key) -> Iterator[Finding]:
    if problem := gateway_problem(g, key, gateway):
        yield problem.at("spec.targetRefs").on(key)
        return
    wrong = tracing_problems(g, key, gateway)
    yield from (problem.on(key) for problem in wrong)
    yield from (replace(each, severity=Severity.WARNING).on(key) for each in unknown_attributes(obj))
    if not wrong and (problem := collector_problem(g, key, gateway)):
        yield problem.within("nothing is exported").at(COLLECTOR).on(key)
    yield from failing(key, gateway, policy_report(g, key).conditions.get(gateway, ()))
