"""How a BackendTLSPolicy stands with one Gateway: which of its targets that Gateway reaches, and which of those it rules."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.api.core import Service
from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy, PolicyTargetReference
from lasthop.plan import reasons
from lasthop.plan.reasons import Condition, false, true
from lasthop.plan.tls import BackendTLS, Refused, Waiver
from lasthop.resolve.policies.backend_tls import reached_by
from lasthop.resolve.policies.gate import permitted_tls
from lasthop.resolve.policies.targets import WHOLE, is_service, section_winner
from lasthop.resolve.policies.validation import verdict
from lasthop.resolve.waivers import said
from lasthop.store.graph import Graph
from lasthop.store.store import read


class Trouble(msgspec.Struct, frozen=True):
    """Why a policy has no effect on one of its targets."""

    reason: str
    message: str
    unresolved: bool = False
    """The reference itself leads nowhere."""


def target_trouble(g: Graph, policy: Key, target: PolicyTargetReference) -> Trouble | None:
    if not is_service(target):
        kind = f"{target.kind} of group {target.group!r}" if target.group else target.kind
        message = f"target {target.name}: kind {kind} is not supported, only core Services are; the policy has no effect on it"
        return Trouble(reasons.INVALID, message)
    key = Key("Service", policy.namespace, target.name)
    service = read(g, key, Service)
    if service is None:
        return Trouble(reasons.TARGET_NOT_FOUND, f"Service {key.path} does not exist", unresolved=True)
    ports = service.spec.ports
    if target.section_name != WHOLE:
        ports = tuple(p for p in ports if p.name == target.section_name)
        if not ports:
            names = ", ".join(p.name for p in service.spec.ports if p.name) or "no named port"
            message = f"Service {key.path} has no port named {target.section_name} (it has {names}); the port stays as it was"
            return Trouble(reasons.TARGET_NOT_FOUND, message, unresolved=True)
    if ports and all(p.protocol == "UDP" for p in ports):
        message = f"port {ports[0].name or ports[0].port} of Service {key.path} is UDP, which cannot carry TLS"
        return Trouble(reasons.INVALID, message)
    winner = g(section_winner, key, target.section_name)
    if winner is not None and winner.policy != policy:
        where = f"Service {key.path}" + (f" port {target.section_name}" if target.section_name else "")
        return Trouble(reasons.CONFLICTED, f"{where} is already ruled by the older BackendTLSPolicy {winner.policy.path}")
    return None


def udp_warning(g: Graph, policy: Key, target: PolicyTargetReference) -> str:
    if not is_service(target) or target.section_name != WHOLE:
        return ""
    service = read(g, Key("Service", policy.namespace, target.name), Service)
    udp = [p.name or str(p.port) for p in service.spec.ports if p.protocol == "UDP"] if service else []
    return f"UDP port {', '.join(udp)} of Service {target.name} is not affected" if udp else ""


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    """The policy's conditions for one Gateway that reaches it."""
    obj, judged = read(g, policy, BackendTLSPolicy), g(verdict, policy)
    if obj is None or judged is None:
        return ()
    troubles: list[Trouble] = []
    warnings = list(judged.warnings)
    effective = 0
    for target in obj.spec.target_refs:
        if not _reaches(g, policy, target, gateway):
            continue
        trouble = g(target_trouble, policy, target)
        if trouble:
            troubles.append(trouble)
        else:
            effective += 1
            warnings.append(udp_warning(g, policy, target))
    accepted, permitted = judged.accepted, g(permitted_tls, gateway, policy)
    if not effective and troubles:
        accepted = false(reasons.ACCEPTED, troubles[0].reason, _joined(t.message for t in troubles))
    elif isinstance(permitted, Refused):
        accepted = false(reasons.ACCEPTED, permitted.reason, permitted.message)
    elif judged.valid:
        accepted = true(reasons.ACCEPTED, _joined([*(t.message for t in troubles), *warnings, *judged.notes]))
    resolved = judged.resolved
    lost = [t for t in troubles if t.unresolved]
    if resolved.status and lost:
        resolved = false(reasons.RESOLVED_REFS, lost[0].reason, _joined(t.message for t in lost))
    if accepted.status and effective and isinstance(permitted, BackendTLS) and permitted.waiver:
        return accepted, resolved, degraded(permitted.waiver)
    return accepted, resolved


def degraded(waiver: Waiver) -> Condition:
    """While a waiver is in effect; absent otherwise."""
    return Condition(reasons.VERIFICATION_DEGRADED, True, waiver.mode, said(waiver))


def _reaches(g: Graph, policy: Key, target: PolicyTargetReference, gateway: Key) -> bool:
    if not is_service(target):
        return False
    service = Key("Service", policy.namespace, target.name)
    return any(found == gateway for found, _ in g(reached_by, service, target.section_name))


def _joined(messages: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(m for m in messages if m))
