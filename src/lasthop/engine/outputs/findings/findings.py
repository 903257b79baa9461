"""All findings on objects, as outputs of the graph."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS, SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.base.api.unserved import NOT_SERVED, Unserved
from lasthop.engine.outputs.findings.endpoints import endpoint_findings
from lasthop.engine.outputs.findings.foreign import FOREIGN_CLASSES
from lasthop.engine.outputs.findings.gateways import class_findings, gateway_findings, listener_set_findings
from lasthop.engine.outputs.findings.policies import backend_failing, failing, policy_findings, xbackend_findings
from lasthop.engine.outputs.findings.routes import route_findings
from lasthop.engine.outputs.status.policies import policy_report
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import NO_LONGER_VERIFIED
from lasthop.engine.plan.tls import Plaintext
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.plan.verdict import Weakening
from lasthop.engine.resolve.backends.app_protocols import annotation_for_tls, looks_like_tls, policy_to_write
from lasthop.engine.resolve.backends.backend_traffic import KIND as TRAFFIC_POLICY
from lasthop.engine.resolve.backends.backend_traffic import TRAFFIC, judgement, target_problem, unreached
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.telemetry import KIND as TELEMETRY_POLICY
from lasthop.engine.resolve.gateways.telemetry import (
    TELEMETRY,
    collector_problem,
    gateway_problem,
    tracing_problems,
    unknown_attributes,
)
from lasthop.engine.resolve.hops.failing import failing_plaintext
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.weakening import WEAKENED_PORTS, WEAKENED_ROUTES, port_weakening
from lasthop.engine.resolve.trust.trust import minute
from lasthop.engine.resolve.trust.waivers import SOON, waiver
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read


@query
def weakening_findings(g: Graph, route: Key, gateway: Key) -> tuple[Finding, ...]:
    """Reports backends with weakened verification on the route, whose requests they expose: without a policy the spec requires
    plaintext, which is rarely the intent of the edit. Several Gateways may report the same weakening."""
    weakenings = dict.fromkeys(WEAKENED_ROUTES.of(g, route, gateway))
    return tuple(_finding(route, weakening) for weakening in weakenings)


def _finding(route: Key, weakening: Weakening) -> Finding:
    about = (weakening.backend, weakening.policy) if weakening.policy else (weakening.backend,)
    return make_finding(route, NO_LONGER_VERIFIED, f"{weakening.message}.", weakening.remedy, about=about)


WEAKENINGS = Output("findings-weakenings", WEAKENED_ROUTES, weakening_findings)
WEAKENED_BACKENDS = Output("weakened-backends", WEAKENED_PORTS, port_weakening)
"""Weakenings by Gateway, backend and port."""


@query
def traffic_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_traffic_policy(g, key)))


def _of_traffic_policy(g: Graph, key: Key) -> Iterator[Finding]:
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
        message = f"its status has no free entry for {gateway}, which does not apply it."
        yield make_finding(key, reasons.INVALID, message, severity=Severity.WARNING, about=(gateway,))


COLLECTOR = "spec.tracing.provider.backendRef"


@query
def telemetry_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_telemetry_policy(g, key)))


def _of_telemetry_policy(g: Graph, key: Key) -> Iterator[Finding]:
    obj, reached = read(g, key, XTelemetryPolicy), TELEMETRY.ancestors(g, key)
    if obj is None:
        return
    for number, target in enumerate(obj.spec.target_refs):
        if problem := TELEMETRY.unsupported(key, target):
            yield problem.at(f"spec.targetRefs[{number}]").on(key)
    for gateway in reached.gateways:
        yield from _at_gateway(g, key, obj, gateway)
    for gateway in reached.without_room:
        message = f"its status has no free entry for {gateway}, which traces nothing."
        yield make_finding(key, reasons.INVALID, message, severity=Severity.WARNING, about=(gateway,))


def _at_gateway(g: Graph, key: Key, obj: XTelemetryPolicy, gateway: Key) -> Iterator[Finding]:
    if problem := gateway_problem(g, key, gateway):
        yield problem.at("spec.targetRefs").on(key)
        return
    wrong = tracing_problems(g, key, gateway)
    yield from (problem.on(key) for problem in wrong)
    yield from (replace(problem, severity=Severity.WARNING).on(key) for problem in unknown_attributes(obj))
    if not wrong and (problem := collector_problem(g, key, gateway)):
        yield problem.within("nothing is exported").at(COLLECTOR).on(key)
    yield from failing(key, gateway, policy_report(g, key).conditions.get(gateway, ()))


@query
def hop_findings(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> tuple[Finding, ...]:
    service = read(g, backend, AnyService) if backend.kind in SERVICE_GROUPS else None
    if service is None:
        return ()
    findings = [*endpoint_findings(g, backend, service, port, protocol)]
    if isinstance(hop_tls(g, gateway, backend, port, protocol), Plaintext):
        hop = Hop(gateway, backend, port, protocol)
        findings += _plaintext(hop, service)
        if problem := failing_plaintext(g, hop):
            findings.append(backend_failing(backend, gateway, problem))
    return tuple(findings)


def _plaintext(hop: Hop, service: AnyService) -> Iterator[Finding]:
    """Warns about a plaintext port that probably serves TLS, by an annotation for another gateway, or by its name or
    number."""
    port = service.port(hop.port) if hop.protocol.policed else None
    if port is None:
        return
    annotation, looks = annotation_for_tls(service, port), looks_like_tls(port)
    if annotation:
        why, field = f"annotation {annotation} enables TLS at other gateways, but has no effect here", "metadata.annotations"
    elif looks:
        why, field = f"{looks}, but no BackendTLSPolicy names it", "spec.ports"
    else:
        return
    remedy = f"Create a BackendTLSPolicy {policy_to_write(hop.backend, port)}; or if plaintext is intended, set "
    remedy += "appProtocol: http on the port."
    yield make_finding(hop.backend, reasons.PLAINTEXT_BACKEND, f"port {hop.port} uses plaintext: {why}.", remedy, field)


@query
def waiver_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    waiver_plan = waiver(g, key)
    if isinstance(waiver_plan, Problem) or waiver_plan.expires is None or g.before(waiver_plan.expires - SOON.total_seconds()):
        return ()
    message = f"ends on {minute(waiver_plan.expires)}; connections that need it fail from then on."
    return (make_finding(key, reasons.WAIVER_EXPIRES_SOON, message, field="spec.expires"),)


@query
def unserved_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    """Warns about unsupported kinds for this controller; others may belong to another controller."""
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
