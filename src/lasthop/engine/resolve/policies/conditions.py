"""The conditions of a BackendTLSPolicy at one Gateway: whether its targets are reached, and whether it takes effect."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy, PolicyTargetReference
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import Problem, invalid, joined, not_found
from lasthop.engine.plan.tls import BackendTLS, Waiver
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import connected
from lasthop.engine.resolve.hops.weakening import WEAKENED_POLICIES, weakened
from lasthop.engine.resolve.policies import targets
from lasthop.engine.resolve.policies.ancestors import ancestors, reached_by
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.permissions import permitted_tls
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.settings import installed
from lasthop.engine.resolve.trust.client_certificates import presented_certificate
from lasthop.engine.resolve.trust.waivers import describe
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read

# Shared instances, because most policies have exactly these two.
ACCEPTED: Final = true(reasons.ACCEPTED)
RESOLVED: Final = true(reasons.RESOLVED_REFS)


def target_problem(g: Graph, policy: Key, target: PolicyTargetReference) -> Problem | None:
    """Returns why a policy does not apply to one of its targets."""
    key = targets.service_of(policy, target)
    service = read(g, key, AnyService) if key else None
    services, wrong_part = targets.mistyped_services(g, policy, target) if service is None else ((), "")
    if services:
        return Problem(reasons.TARGET_NOT_FOUND, targets.mistyped_text(services, wrong_part), about=services)
    if key is None or not installed(g, key.kind):
        kind = f"{target.kind} of group {target.group!r}" if target.group else target.kind
        supported = " and ".join(f"{kind}s" for kind in SERVICE_GROUPS if installed(g, kind))
        return invalid(
            f"target {target.name}: kind {kind} is not supported, only {supported} are; the policy has no effect on it"
        )
    if service is None:
        return not_found(reasons.TARGET_NOT_FOUND, key, guess=targets.closest_service(g, key))
    ports = service.spec.ports
    if target.section_name != targets.WHOLE:
        ports = tuple(p for p in ports if p.name == target.section_name)
        if not ports:
            return Problem(reasons.TARGET_NOT_FOUND, targets.missing_port(g, key, target.section_name), about=(key,))
    if ports and ports[0].protocol == "UDP" and all(p.protocol == "UDP" for p in ports):
        return invalid(f"port {ports[0].name or ports[0].port} of {key} is UDP, which cannot carry TLS", key)
    winner = targets.section_winner(g, key, target.section_name)
    if winner is not None and winner.policy != policy:
        where = f"{key} port {target.section_name}" if target.section_name else str(key)
        message = f"{where} is already targeted by BackendTLSPolicy {precedence(g, policy, winner)}"
        return Problem(reasons.CONFLICTED, message, about=(key, winner.policy))
    return None


def precedence(g: Graph, policy: Key, winner: targets.TargetClaim) -> str:
    """Names the policy that takes precedence over another with the same target, and the rule."""
    obj = read_policy(g, policy)
    rule = targets.rule_of(winner.age, obj.age if obj else winner.age)
    return f"{winner.policy.path}, which {rule}" + (" and cannot be read, so connections fail" if winner.rejected else "")


def exceptions(g: Graph, policy: Key, target: PolicyTargetReference) -> tuple[str, str]:
    """Returns notes about ports of a whole-Service target that the policy does not affect: UDP ports, and ports with a more
    specific policy."""
    key = targets.service_of(policy, target) if target.section_name == targets.WHOLE else None
    service = read(g, key, AnyService) if key else None
    if key is None or service is None:
        return "", ""
    return _udp_warning(service, target), _shadowed(g, policy, key, service)


def _udp_warning(service: AnyService, target: PolicyTargetReference) -> str:
    udp = [p.name or str(p.port) for p in service.spec.ports if p.protocol == "UDP"]
    return f"UDP port {', '.join(udp)} of {target.kind} {target.name} is not affected" if udp else ""


def _shadowed(g: Graph, policy: Key, key: Key, service: AnyService) -> str:
    """Reports that every port of a Service has a more specific policy, so that this one is never used."""
    if targets.WINNERS.of(g, key).keys() <= {targets.WHOLE}:
        return ""
    winners = [targets.port_winner(g, key, p.name) for p in service.spec.ports if p.protocol == "TCP"]
    policies = dict.fromkeys(winner.policy if winner else policy for winner in winners)
    if not policies or policy in policies:
        return ""
    return f"no port of {key} uses it: other policies name each port ({', '.join(winner.path for winner in policies)})"


class TargetsAtGateway(msgspec.Struct, frozen=True):
    """The targets of a policy, as seen from one Gateway."""

    effective: bool
    """Whether the policy applies to a target that the Gateway reaches."""
    reached: tuple[Problem, ...]
    """Problems of targets that the Gateway reaches."""
    elsewhere: tuple[Problem, ...]
    """Problems of other targets, which may have no other status entry."""
    notes: tuple[str, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.reached + self.elsewhere


def targets_at(g: Graph, policy: Key, obj: BackendTLSPolicy, gateway: Key) -> TargetsAtGateway:
    effective = False
    reached: list[Problem] = []
    elsewhere: list[Problem] = []
    notes: list[str] = []
    concerned = ancestors(g, policy)
    # An ancestor reaches at least one target, so it reaches a single one.
    is_only_target = len(obj.spec.target_refs) == 1 and gateway in concerned.gateways
    for target in obj.spec.target_refs:
        is_reached, problem = is_only_target or _reaches(g, policy, target, gateway), target_problem(g, policy, target)
        if problem:
            (reached if is_reached else elsewhere).append(problem)
        elif is_reached:
            effective = True
            notes += exceptions(g, policy, target)
        else:
            notes.append(f"{target.kind} {policy.namespace}/{target.name} is not reached from this Gateway")
    for other_gateway in concerned.without_room:
        elsewhere.append(
            invalid(f"this status has no free entry for {other_gateway}, so connections from there fail", other_gateway)
        )
    return TargetsAtGateway(effective, tuple(reached), tuple(elsewhere), tuple(filter(None, notes)))


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    obj, judged = read_policy(g, policy), judgement(g, policy)
    if obj is None or judged is None:
        return ()
    at_gateway = targets_at(g, policy, obj, gateway)
    permitted = permitted_tls(g, gateway, policy)
    problem = permitted if isinstance(permitted, Problem) else judged.problem
    if not at_gateway.effective and at_gateway.reached:
        problem = joined(at_gateway.problems)
    notes = [*(problem.text for problem in at_gateway.problems), *judged.warnings, *at_gateway.notes, *judged.notes]
    accepted = ACCEPTED
    if problem or notes:
        accepted = failed(reasons.ACCEPTED, problem) if problem else true(reasons.ACCEPTED, "; ".join(dict.fromkeys(notes)))
    resolved = failed(reasons.RESOLVED_REFS, judged.unresolved) if judged.unresolved else RESOLVED
    missing = [problem for problem in at_gateway.problems if problem.reason == reasons.TARGET_NOT_FOUND]
    if resolved.status and missing:
        resolved = failed(reasons.RESOLVED_REFS, joined(missing))
    optional = []
    if accepted.status and at_gateway.effective:
        if at_gateway.problems:
            optional.append(failed(reasons.PARTIALLY_INVALID, joined(at_gateway.problems)))
        if unserved := not_programmed(g, gateway, permitted):
            optional.append(unserved)
        hops = hops_under(g, policy, obj, gateway)
        if observed := connected(g, hops):
            optional.append(observed)
        if isinstance(permitted, BackendTLS) and permitted.waiver and hops:
            optional.append(degraded(permitted.waiver))
    return accepted, resolved, *optional, *weakened(WEAKENED_POLICIES.of(g, policy, gateway))


def not_programmed(g: Graph, gateway: Key, permitted: BackendTLS | Problem | None) -> Condition | None:
    """Returns why a valid policy takes no effect at a Gateway: the Gateway is not served, or the client certificate is
    invalid. It is a separate condition because `Accepted` describes the policy; it is absent otherwise."""
    if why := serves_nothing(g, gateway):
        return failed(reasons.PROGRAMMED, why)
    certificate = presented_certificate(g, gateway, permitted) if isinstance(permitted, BackendTLS) else None
    if isinstance(certificate, Problem):
        return failed(reasons.PROGRAMMED, certificate.within(f"connections from {gateway} fail"))
    return None


def unreached(g: Graph, policy: Key) -> Problem | None:
    """Returns why no Gateway uses a policy with valid targets."""
    obj = read_policy(g, policy)
    reached = ancestors(g, policy)
    if obj is None or reached.gateways or reached.without_room:
        return None
    if any(hop.protocol is Protocol.PASSTHROUGH for service in targets.named_services(obj) for hop in REACH.of(g, service)):
        message = "its targets are reached only by TLS Passthrough, with the client's own TLS, so the policy has no effect"
        remedy = "remove it, or let the listener terminate TLS"
        return Problem(reasons.NOT_REACHED, message, remedy=remedy)
    message = "no Gateway reaches its targets through a route, so the policy has no effect yet"
    return Problem(reasons.NOT_REACHED, message)


def degraded(waiver: Waiver) -> Condition:
    """Returns the condition of a policy whose waiver is in effect."""
    return Condition(reasons.VERIFICATION_DEGRADED, True, reasons.Reason(waiver.strength.label), describe(waiver))


def hops_under(g: Graph, policy: Key, obj: BackendTLSPolicy, gateway: Key) -> list[Hop]:
    """Returns the hops from a Gateway that use the policy. Hops that are refused for other reasons do not."""
    services = dict.fromkeys([targets.service_of(policy, target) for target in obj.spec.target_refs])
    reached = [hop for service in services if service for hop in REACH.of(g, service) if hop.gateway == gateway]
    return [hop for hop in reached if isinstance(tls := hop_tls(g, *hop), BackendTLS) and tls.source == policy]


def _reaches(g: Graph, policy: Key, target: PolicyTargetReference, gateway: Key) -> bool:
    service = targets.service_of(policy, target)
    return service is not None and any(reaching == gateway for reaching, _ in reached_by(g, service, target.section_name))
