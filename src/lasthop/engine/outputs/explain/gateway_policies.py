"""Explains an XBackendTrafficPolicy or XTelemetryPolicy by its status and its findings: its effect at each Gateway."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.explain.fact import Fact, bad, good, warning, worst
from lasthop.engine.outputs.findings.findings import telemetry_findings, traffic_findings
from lasthop.engine.outputs.status.policies import policy_report
from lasthop.engine.plan.finding import Severity
from lasthop.engine.resolve.backends.backend_traffic import KIND as TRAFFIC_POLICY
from lasthop.engine.resolve.gateways.telemetry import KIND as TELEMETRY_POLICY
from lasthop.engine.store.graph import Graph

FINDINGS_OF = {TRAFFIC_POLICY: traffic_findings, TELEMETRY_POLICY: telemetry_findings}


def explain_gateway_policy(g: Graph, key: Key) -> Fact:
    stated = policy_report(g, key).conditions.items()
    facts = [good(f"in effect at {at}", object=at) for at, conditions in stated if not any(c.problem for c in conditions)]
    for finding in FINDINGS_OF[key.kind](g, key):
        state = bad if finding.severity is Severity.ERROR else warning
        facts.append(state(f"{finding.field}: {finding.message}" if finding.field else finding.message))
    facts = facts or [warning("no effect: no Gateway uses it")]
    return Fact(str(key), worst(facts), tuple(facts), key)
