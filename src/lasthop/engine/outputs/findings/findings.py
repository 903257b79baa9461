"""Every finding that the objects themselves give rise to, as outputs of the graph."""

from __future__ import annotations

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.unserved import NOT_SERVED, Unserved
from lasthop.engine.outputs.findings.foreign import FOREIGN_CLASSES
from lasthop.engine.outputs.findings.gateways import class_findings, gateway_findings, listener_set_findings
from lasthop.engine.outputs.findings.hops import hop_findings
from lasthop.engine.outputs.findings.policies import policy_findings, xbackend_findings
from lasthop.engine.outputs.findings.routes import route_findings
from lasthop.engine.outputs.findings.telemetry import telemetry_findings
from lasthop.engine.outputs.findings.traffic import traffic_findings
from lasthop.engine.outputs.findings.weakenings import WEAKENINGS
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.backends.backend_traffic import KIND as TRAFFIC_POLICY
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.telemetry import KIND as TELEMETRY_POLICY
from lasthop.engine.resolve.trust.trust import minute
from lasthop.engine.resolve.trust.waivers import SOON, waiver
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read


@query
def waiver_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    found = waiver(g, key)
    if isinstance(found, Problem) or found.expires is None or g.before(found.expires - SOON.total_seconds()):
        return ()
    message = f"ends on {minute(found.expires)}, and connections that need it fail from then on."
    return (make_finding(key, reasons.WAIVER_EXPIRES_SOON, message, field="spec.expires"),)


@query
def unserved_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    """Warns of those that are meant for us; others may be another controller's."""
    obj = read(g, key, Unserved)
    if obj is None or obj.spec.controller_name != CONTROLLER_NAME:
        return ()
    return (make_finding(key, reasons.UNSUPPORTED_VALUE, NOT_SERVED.format(key.kind), severity=Severity.WARNING),)


UNSERVED_KINDS = tuple(kind.kind for kind in KINDS.values() if kind.struct is Unserved)

FINDINGS = (
    Output("findings-classes", "GatewayClass", class_findings),
    Output("findings-gateways", "Gateway", gateway_findings),
    Output("findings-listener-sets", "ListenerSet", listener_set_findings),
    *(Output(f"findings-{kind}", kind, route_findings) for kind in ROUTE_KINDS),
    Output("findings-policies", "BackendTLSPolicy", policy_findings),
    Output("findings-xbackends", XBACKEND, xbackend_findings),
    Output("findings-traffic-policies", TRAFFIC_POLICY, traffic_findings),
    Output("findings-telemetry-policies", TELEMETRY_POLICY, telemetry_findings),
    Output("findings-waivers", "VerificationWaiver", waiver_findings),
    Output("findings-hops", HOPS, hop_findings),
    WEAKENINGS,
    FOREIGN_CLASSES,
    *(Output(f"findings-{kind}", kind, unserved_findings) for kind in UNSERVED_KINDS),
)
