"""Findings: everything in a status that is not as its author wants it, and what no status can hold."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.backends import EXTERNAL_HOSTNAME, XBackend
from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.core import Service
from lasthop.api.gateway import Gateway
from lasthop.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy
from lasthop.api.route_kinds import ROUTE_KINDS, STREAM_KINDS
from lasthop.api.status import ConditionStatus, GatewayStatus, ListenerSetStatus
from lasthop.api.unserved import Unserved
from lasthop.outputs.envoy.encoded_routes import unserved
from lasthop.outputs.status.downgrades import downgrade_findings
from lasthop.outputs.status.endpoints import ENDPOINT_FINDINGS
from lasthop.outputs.status.gateways import class_status, gateway_status
from lasthop.outputs.status.listener_sets import listener_set_status
from lasthop.outputs.status.policies import UNSERVED
from lasthop.outputs.status.routes import route_status
from lasthop.outputs.status.strangers import CLASSES as STRANGERS
from lasthop.outputs.status.strangers import unattached, unheld
from lasthop.outputs.status.xbackends import xbackend_status
from lasthop.plan import reasons
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.problem import Problem
from lasthop.plan.routing import Parent
from lasthop.plan.tls import Plaintext
from lasthop.plan.upstream import Protocol
from lasthop.resolve.attachment import parents, route_hostname
from lasthop.resolve.budgets import verdict_at
from lasthop.resolve.default_gateways import without_effect
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.policies.ancestors import ancestors
from lasthop.resolve.policies.conditions import conditions, shadowed, target_trouble, udp_warning, unreached
from lasthop.resolve.policies.permissions import permitted_tls
from lasthop.resolve.policies.validation import verdict as policy_verdict
from lasthop.resolve.profiles import limits
from lasthop.resolve.refusals import long_session_name, session_problems
from lasthop.resolve.routes import PROTOCOLS, read_route, unkept_sessions
from lasthop.resolve.streams import owner
from lasthop.resolve.trust import BadRef, minute, pair_dates
from lasthop.resolve.unserved import concerned
from lasthop.resolve.waivers import SOON as WAIVER_SOON
from lasthop.resolve.waivers import waiver
from lasthop.resolve.xbackends import PLAINTEXT, client_certificate, spec_problem
from lasthop.store.graph import Graph, Output, query
from lasthop.store.store import read

NEGATIVE = frozenset({reasons.CONFLICTED, reasons.PARTIALLY_INVALID})
"""Conditions that are bad news when true."""
SAID_ELSEWHERE = frozenset({reasons.LISTENERS_NOT_VALID, reasons.PARENT_NOT_ACCEPTED, reasons.PARENT_NOT_PROGRAMMED})
"""Reasons of Gateways and ListenerSets that only point to the listeners or to the Gateway, which speak for themselves."""

SAID_BY_GATEWAYS = frozenset({reasons.INVALID, reasons.NO_VALID_CA_CERTIFICATE})
"""Reasons of listeners that the Gateway gives too."""


def _without_effect(key: Key, field: str, scope: str) -> Iterator[Finding]:
    if message := without_effect(field, scope):
        yield Finding(key, reasons.UNSUPPORTED_VALUE, message, field=f"spec.{field}", severity=Severity.WARNING)


def _bad(key: Key, conditions: tuple[ConditionStatus, ...], where: str = "", field: str = "") -> Iterator[Finding]:
    for condition in conditions:
        if (condition.status == "True") == (condition.type in NEGATIVE) and condition.reason != reasons.PENDING:
            yield Finding(key, condition.reason, f"{where}{condition.message}", field=field)


@query
def gateway_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    obj, status = read(g, key, Gateway), gateway_status(g, key)
    if obj is None or status is None:
        return ()
    ignored = _without_effect(key, "defaultScope", obj.spec.default_scope)
    return tuple(dict.fromkeys((*_of_listeners(key, status), *ignored)))


@query
def listener_set_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    status = listener_set_status(g, key)
    if status is None:
        return (unheld(g, key),)
    return tuple(dict.fromkeys(_of_listeners(key, status)))


def _of_listeners(key: Key, status: GatewayStatus | ListenerSetStatus) -> Iterator[Finding]:
    for number, listener in enumerate(status.listeners):
        found = _bad(key, listener.conditions, f"listener {listener.name}: ", f"spec.listeners[{number}]")
        yield from (f for f in found if f.reason not in SAID_BY_GATEWAYS)
        yield from _noted(key, listener.conditions, f"listener {listener.name}: ", f"spec.listeners[{number}].tls")
    own = tuple(condition for condition in status.conditions if condition.type == reasons.RESOLVED_REFS)
    yield from _noted(key, own, "", "spec.tls.backend.clientCertificateRef")
    for condition in status.conditions:
        if condition.type == reasons.INSECURE_FRONTEND_VALIDATION_MODE:
            field = "spec.tls.frontend"
            yield Finding(key, condition.type, condition.message, field=field, severity=Severity.WARNING)
    # A port that cannot be had is the listener's news; a Gateway with no other port repeats it.
    said = {
        condition.message
        for listener in status.listeners
        for condition in listener.conditions
        if condition.status == "False" and condition.reason not in SAID_BY_GATEWAYS
    }
    yield from (f for f in _bad(key, status.conditions) if f.reason not in SAID_ELSEWHERE and f.message not in said)


def _noted(key: Key, conditions: tuple[ConditionStatus, ...], where: str, field: str) -> Iterator[Finding]:
    """What is said where nothing is wrong: a certificate that should soon, or now, no longer be used."""
    for condition in conditions:
        if condition.type in (reasons.ACCEPTED, reasons.RESOLVED_REFS) and condition.status == "True" and condition.message:
            yield Finding(key, "Warning", f"{where}{condition.message}", field=field, severity=Severity.WARNING)


@query
def class_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    status = class_status(g, key)
    return tuple(_bad(key, status.conditions)) if status else ()


@query
def route_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    obj, status = read_route(g, key), route_status(g, key)
    if obj is None:
        return ()
    found = list(_without_effect(key, "useDefaultGateways", obj.spec.use_default_gateways))
    found += unattached(g, key, served=status is not None)
    if status is None:
        return tuple(found)
    for unkept in unkept_sessions(g, key):
        found.append(Finding(key, unkept.reason, unkept.message, field=unkept.field, severity=Severity.WARNING))
    for parent in parents(g, key):
        if parent.problem:
            found.append(Finding(key, parent.problem.reason, parent.problem.message, field="spec.parentRefs"))
        judged = verdict_at(g, key, parent)
        found += [Finding(key, p.reason, p.message, field=p.field) for p in (*judged.left_out, *judged.refused, *judged.refs)]
        problems, _ = unserved(g, key, parent.gateway, parent.hosts) if key.kind in PROTOCOLS else ((), False)
        remedy = "Edit the route, and please report this: Lasthop should have seen it first."
        found += [Finding(key, p.reason, p.message, remedy) for p in problems]
        found += _lost(g, key, parent) if key.kind in STREAM_KINDS else ()
    return tuple(dict.fromkeys(found))


def _lost(g: Graph, key: Key, parent: Parent) -> Iterator[Finding]:
    """A connection has one route. No condition is for that: the spec has the others accepted all the same."""
    for table, hostname in parent.hosts:
        other = owner(g, parent.gateway, table, hostname)
        if other and other != key:
            own, others = route_hostname(g, key, hostname), route_hostname(g, other, hostname)
            why = "which is older, or first by name" if own == others else "which has the more specific hostname"
            what = f"everything for {hostname}" if hostname else "everything"
            message = f"{what} on listener {table.partition('/')[2]} of {parent.gateway} goes to {other}, {why}."
            yield Finding(
                key, "Shadowed", message, "Give each a listener or a hostname of its own.", severity=Severity.WARNING
            )


@query
def policy_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_policy(g, key)))


def _of_policy(g: Graph, key: Key) -> Iterator[Finding]:
    obj, judged = read(g, key, BackendTLSPolicy), policy_verdict(g, key)
    if obj is None or judged is None:
        return
    if not judged.accepted.status:
        yield Finding(key, judged.accepted.reason, judged.accepted.message, field=judged.field)
    elif not judged.resolved.status:
        yield Finding(key, judged.resolved.reason, judged.resolved.message, field=judged.field)
    for warning in judged.warnings:
        yield Finding(key, "Warning", warning, field="spec.validation", severity=Severity.WARNING)
    troubles = [target_trouble(g, key, target) for target in obj.spec.target_refs]
    for number, (target, trouble) in enumerate(zip(obj.spec.target_refs, troubles, strict=True)):
        field = f"spec.targetRefs[{number}]"
        if trouble:
            yield Finding(key, trouble.reason, trouble.message, field=field)
        if warning := udp_warning(g, key, target):
            yield Finding(key, "Warning", warning, field=field, severity=Severity.WARNING)
        if not trouble and (never := shadowed(g, key, target)):
            yield Finding(key, "Shadowed", f"{never}.", "Remove the target.", field=field, severity=Severity.WARNING)
    if not all(troubles) and (why := unreached(g, key)):
        yield Finding(key, "NotReached", why, severity=Severity.WARNING)
    reached = ancestors(g, key)
    for gateway_key in reached.gateways:
        yield from _at_gateway(g, key, gateway_key, judged.valid)
    for gateway_key in reached.without_room:
        message = f"its status has no room for {gateway_key}; connections from there fail."
        remedy = "Let that Gateway use a second Service for the same backend, with a policy of its own."
        yield Finding(key, reasons.INVALID, message, remedy)


def _at_gateway(g: Graph, key: Key, gateway_key: Key, valid: bool) -> Iterator[Finding]:
    """What differs from Gateway to Gateway: whether its operator permits what the policy asks for."""
    permitted = permitted_tls(g, gateway_key, key)
    if valid and isinstance(permitted, Problem):
        yield Finding(key, permitted.reason, f"at {gateway_key}: {permitted.text}", field="spec.validation")
    for condition in conditions(g, key, gateway_key):
        if condition.type == reasons.VERIFICATION_DEGRADED:
            message = f"at {gateway_key}: {condition.message}"
            yield Finding(key, reasons.VERIFICATION_DEGRADED, message, field="spec.validation", severity=Severity.WARNING)


@query
def xbackend_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_xbackend(g, key)))


def _of_xbackend(g: Graph, key: Key) -> Iterator[Finding]:
    obj, judged, own = read(g, key, XBackend), policy_verdict(g, key), spec_problem(g, key)
    if obj is None:
        return
    if own:
        yield Finding(key, own.reason, own.text, field="spec")
    if judged and not (judged.accepted.status and judged.resolved.status):
        told = judged.resolved if judged.accepted.status else judged.accepted
        yield Finding(key, told.reason, told.message, field=judged.field)
    for warning in judged.warnings if judged else ():
        yield Finding(key, "Warning", warning, field="spec.tls.validation", severity=Severity.WARNING)
    shown = client_certificate(g, key)
    if isinstance(shown, Key) and (message := pair_dates(g, shown)):
        yield Finding(key, "Warning", message, field="spec.tls.clientCertificateRef", severity=Severity.WARNING)
    session = obj.spec.session_persistence
    for problem in session_problems(session, "spec.sessionPersistence") if session else ():
        yield Finding(key, problem.reason, problem.message, field=problem.field)
    status = xbackend_status(g, key)
    if status is None:
        message = "no Gateway reaches it through a route, so it has no effect yet"
        yield Finding(key, "NotReached", message, "Send a route of a Gateway to it.", severity=Severity.WARNING)
        return
    valid = not own and (judged is None or judged.accepted.status)
    for entry in status.ancestors:
        at = f"at Gateway {entry.ancestor_ref.namespace}/{entry.ancestor_ref.name}: "
        of_gateway = limits(g, Key("Gateway", entry.ancestor_ref.namespace, entry.ancestor_ref.name))
        for problem in long_session_name(session, "spec.sessionPersistence", of_gateway) if session else ():
            yield Finding(key, problem.reason, f"{at}{problem.message}", field=problem.field)
        for condition in entry.conditions:
            if condition.type == reasons.VERIFICATION_DEGRADED:
                field = "spec.tls.validation"
                yield Finding(key, condition.type, f"{at}{condition.message}", field=field, severity=Severity.WARNING)
            elif condition.type == reasons.ACCEPTED and condition.status == "False" and valid:
                yield Finding(key, condition.reason, f"{at}{condition.message}", field="spec")
    if obj.spec.type == EXTERNAL_HOSTNAME and obj.spec.tls.mode == PLAINTEXT and not own:
        message = f"nothing verifies who answers as {obj.spec.external_hostname.hostname}: it is spoken to in plaintext."
        remedy = "Give it tls: ServerOnly, or ClientAndServer."
        yield Finding(key, "PlaintextBackend", message, remedy, field="spec.tls", severity=Severity.WARNING)


@query
def waiver_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    found = waiver(g, key)
    if isinstance(found, BadRef) or found.expires is None or g.before(found.expires - WAIVER_SOON.total_seconds()):
        return ()
    message = f"ends on {minute(found.expires)}, and connections that need it fail from then on."
    remedy = "Mend the backend's certificate by then, or prolong the waiver."
    return (Finding(key, "WaiverExpiresSoon", message, remedy, field="spec.expires", severity=Severity.WARNING),)


@query
def hop_findings(g: Graph, gateway_key: Key, service_key: Key, port: int, protocol: Protocol) -> tuple[Finding, ...]:
    """`appProtocol: https` never starts TLS; whoever writes it surely expects that it does."""
    service = read(g, service_key, Service) if service_key.kind == "Service" else None
    service_port = service.port(port) if service else None
    if service_port is None or service_port.app_protocol.lower() != "https" or not protocol.policed:
        return ()
    if not isinstance(hop_tls(g, gateway_key, service_key, port, protocol), Plaintext):
        return ()
    message = f"port {port} has appProtocol {service_port.app_protocol} but is spoken to in plaintext"
    remedy = "Create a BackendTLSPolicy for it."
    return (Finding(service_key, "PlaintextBackend", message, remedy, severity=Severity.WARNING),)


@query
def unserved_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    """Of those that are meant for us; others may be another controller's."""
    obj = read(g, key, Unserved)
    if obj is None or (obj.spec.controller_name != CONTROLLER_NAME and not concerned(g, key)):
        return ()
    return (Finding(key, reasons.UNSUPPORTED_VALUE, UNSERVED.format(key.kind), severity=Severity.WARNING),)


UNSERVED_KINDS = tuple(kind.kind for kind in KINDS.values() if kind.struct is Unserved)

FINDINGS = (
    Output("findings-classes", "GatewayClass", class_findings),
    Output("findings-gateways", "Gateway", gateway_findings),
    Output("findings-listener-sets", "ListenerSet", listener_set_findings),
    *(Output(f"findings-{kind}", kind, route_findings) for kind in ROUTE_KINDS),
    Output("findings-policies", "BackendTLSPolicy", policy_findings),
    Output("findings-xbackends", XBACKEND, xbackend_findings),
    Output("findings-waivers", "VerificationWaiver", waiver_findings),
    Output("findings-hops", "hop", hop_findings),
    Output("findings-downgrades", "Service", downgrade_findings),
    ENDPOINT_FINDINGS,
    STRANGERS,
    *(Output(f"findings-{kind}", kind, unserved_findings) for kind in UNSERVED_KINDS),
)
