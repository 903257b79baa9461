"""Findings on XBackendTrafficPolicies."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC, judgement, target_problem, unreached
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read


@query
def traffic_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_policy(g, key)))


def _of_policy(g: Graph, key: Key) -> Iterator[Finding]:
    obj = read(g, key, XBackendTrafficPolicy)
    if obj is None:
        return
    problems = [target_problem(g, key, target) for target in obj.spec.target_refs]
    for number, problem in enumerate(problems):
        if problem:
            yield problem.at(f"spec.targetRefs[{number}]").on(key)
    if not all(problems) and (unused := unreached(g, key)):
        yield unused.on(key)
    reached = TRAFFIC.ancestors(g, key)
    for gateway in reached.gateways:
        yield from (problem.on(key) for problem in judgement(g, key, gateway).problems)
    for gateway in reached.without_room:
        message = f"its status has no room for {gateway}, which does not apply it."
        yield make_finding(key, reasons.INVALID, message, severity=Severity.WARNING, about=(gateway,))
