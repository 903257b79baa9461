"""Findings on BackendTLSPolicies and XBackends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.base.api.backends import EXTERNAL_HOSTNAME, XBackend
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import PolicyTargetReference
from lasthop.engine.outputs.status.policies import policy_report
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.messages import probe_command
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.backends import xbackend_conditions
from lasthop.engine.resolve.backends.xbackends import PLAINTEXT, client_certificate, spec_problem
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.policies.ancestors import ancestors
from lasthop.engine.resolve.policies.conditions import exceptions, target_problem, unreached
from lasthop.engine.resolve.policies.judgement import Judgement, judgement
from lasthop.engine.resolve.policies.permissions import permitted_tls
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.routing.refusals import long_session_name, session_problems
from lasthop.engine.resolve.trust.client_certificates import policy_certificate
from lasthop.engine.resolve.trust.trust import pair_dates
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

SESSION: Final = "spec.sessionPersistence"


def backend_failing(key: Key, gateway: Key, problem: Problem) -> Finding:
    """Returns the finding on the object that decides the connection to a backend."""
    remedy = f"See which check fails with: {probe_command(key)}"
    if key.kind in SERVICE_GROUPS and problem.reason == reasons.REQUESTS_FAILED:
        remedy = "Check the backend's log: it may serve TLS or another protocol."
    elif key.kind in SERVICE_GROUPS:
        remedy = "Start the backend, or correct the addresses and ports of its EndpointSlice."
    return make_finding(
        key, reasons.BACKEND_FAILING, f"at {gateway}: {problem.message}.", remedy, about=(gateway, *problem.about)
    )


@query
def policy_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_policy(g, key)))


def _of_policy(g: Graph, key: Key) -> Iterator[Finding]:
    obj, judged = read_policy(g, key), judgement(g, key)
    if obj is None or judged is None:
        return
    yield from _judged(key, judged, "spec.validation")
    yield from _dates(g, key, policy_certificate(g, key), "spec.options")
    problems = [target_problem(g, key, target) for target in obj.spec.target_refs]
    for number, (target, problem) in enumerate(zip(obj.spec.target_refs, problems, strict=True)):
        yield from _of_target(g, key, target, problem, f"spec.targetRefs[{number}]")
    if not all(problems) and (unused := unreached(g, key)):
        yield unused.on(key)
    reached = ancestors(g, key)
    for gateway in reached.gateways:
        yield from _at_gateway(g, key, gateway)
    for gateway in reached.without_room:
        message = f"its status has no free entry for {gateway}; connections from there fail."
        remedy = "Use a second Service for the same backend at that Gateway, with a separate policy."
        yield make_finding(key, reasons.INVALID, message, remedy, about=(gateway,))


def _judged(key: Key, judged: Judgement, field: str) -> Iterator[Finding]:
    """Yields the problems of a policy or XBackend that are common to all Gateways."""
    if problem := judged.problem or judged.unresolved:
        yield problem.on(key)
    yield from (make_finding(key, reasons.WARNING, warning, field=field) for warning in judged.warnings)


def _dates(g: Graph, key: Key, certificate: Key | Problem | None, field: str) -> Iterator[Finding]:
    if isinstance(certificate, Key) and (message := pair_dates(g, certificate)):
        yield make_finding(key, reasons.WARNING, message, field=field)


def _of_target(g: Graph, key: Key, target: PolicyTargetReference, problem: Problem | None, field: str) -> Iterator[Finding]:
    if problem:
        yield problem.at(field).on(key)
    udp, never = exceptions(g, key, target)
    if udp:
        yield make_finding(key, reasons.WARNING, udp, field=field)
    if not problem and never:
        yield make_finding(key, reasons.SHADOWED, f"{never}.", "Remove the target.", field=field)


def _at_gateway(g: Graph, key: Key, gateway: Key) -> Iterator[Finding]:
    """Yields the findings at one Gateway: permissions, waivers in effect, and failing connections."""
    stated = policy_report(g, key).conditions.get(gateway, ())
    refused = any(condition.type == reasons.ACCEPTED and condition.problem for condition in stated)
    if refused and isinstance(permitted := permitted_tls(g, gateway, key), Problem):
        yield permitted.within(f"at {gateway}", gateway).at("spec.validation").on(key)
    yield from _weakened(key, gateway, stated, "spec.validation")
    yield from failing(key, gateway, stated)


def _weakened(key: Key, gateway: Key, conditions: tuple[Condition, ...], field: str) -> Iterator[Finding]:
    for condition in conditions:
        if condition.type == reasons.VERIFICATION_DEGRADED:
            message = f"at {gateway}: {condition.message}"
            yield make_finding(key, condition.type, message, field=field, about=(gateway,))


def failing(key: Key, gateway: Key, conditions: tuple[Condition, ...]) -> Iterator[Finding]:
    """Reports failing connections under a policy or an XBackend."""
    for condition in conditions:
        if condition.type == reasons.BACKEND_CONNECTED and condition.problem:
            yield backend_failing(key, gateway, condition.problem)


@query
def xbackend_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_of_xbackend(g, key)))


def _of_xbackend(g: Graph, key: Key) -> Iterator[Finding]:
    obj, judged, spec_error = read(g, key, XBackend), judgement(g, key), spec_problem(g, key)
    if obj is None:
        return
    if spec_error:
        yield spec_error.at("spec").on(key)
    yield from _judged(key, judged, "spec.tls.validation") if judged else ()
    yield from _dates(g, key, client_certificate(g, key), "spec.tls.clientCertificateRef")
    if session := obj.spec.session_persistence:
        yield from (problem.on(key) for problem in session_problems(session, SESSION))
    gateways = xbackend_conditions.gateways(g, key)
    if not gateways:
        message = "no Gateway reaches it through a route, so it has no effect yet"
        yield make_finding(key, reasons.NOT_REACHED, message, "Refer to it in a route of a Gateway.")
        return
    valid = not spec_error and (judged is None or judged.problem is None)
    for gateway in gateways:
        yield from _xbackend_at_gateway(g, key, obj, gateway, valid=valid)
    if obj.spec.type == EXTERNAL_HOSTNAME and obj.spec.tls.mode == PLAINTEXT and not spec_error:
        message = f"nothing verifies the server behind {obj.spec.external_hostname.hostname}: it uses plaintext."
        remedy = "Set tls.mode to ServerOnly or ClientAndServer."
        yield make_finding(key, reasons.PLAINTEXT_BACKEND, message, remedy, field="spec.tls")


def _xbackend_at_gateway(g: Graph, key: Key, obj: XBackend, gateway: Key, *, valid: bool) -> Iterator[Finding]:
    at, stated = f"at {gateway}", policy_report(g, key).conditions.get(gateway, ())
    if session := obj.spec.session_persistence:
        too_long = long_session_name(session, SESSION, limits(g, gateway))
        yield from (problem.within(at, gateway).on(key) for problem in too_long)
    accepted = next((c.problem for c in stated if c.type == reasons.ACCEPTED), None)
    if accepted and valid:
        yield accepted.within(at, gateway).at("spec").on(key)
    yield from _weakened(key, gateway, stated, "spec.tls.validation")
    yield from failing(key, gateway, stated)
