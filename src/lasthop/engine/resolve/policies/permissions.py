"""Applies the rules of GatewayProfiles to policies, and to backends without one, at one Gateway.

The same policy may be permitted at one Gateway and refused at another; each has its own clusters and its own status entry.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid
from lasthop.engine.plan.profile import BackendRules, PlaintextBackends
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, Waiver
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import declares_plaintext
from lasthop.engine.resolve.gateways.profiles import backend_rules, limits, lowest_version, plaintext_rule
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.targets import misaimed
from lasthop.engine.resolve.trust.certificates import too_large
from lasthop.engine.resolve.trust.trust import minute
from lasthop.engine.store.graph import Graph

DAY: Final = 86400.0


def permitted_tls(g: Graph, gateway: Key, source: Key) -> BackendTLS | Problem | None:
    """Returns the TLS of a policy or XBackend if this Gateway's operator permits it, or the problem; None if the policy itself
    is invalid."""
    judged = judgement(g, source)
    tls = judged.tls if judged else None
    if tls is None:
        return None
    if tls.waiver and (problem := _waiver_problem(g, backend_rules(g, gateway), tls.waiver)):
        return problem
    if tls.strength is Strength.PINNED_ONLY and not (rules := backend_rules(g, gateway)).pinned_only:
        message = f"pins without CAs check neither names nor dates, which is denied here ({rules.by})"
        remedy = "add CAs or the certificate itself to the PinSet (`lasthop pin`)"
        return Problem(reasons.PINNED_ONLY_NOT_PERMITTED, message, remedy=remedy)
    if isinstance(tls.trust, Anchors):
        if tls.trust.weak and not (rules := backend_rules(g, gateway)).weak:
            message = f"{tls.trust.weak}, but weak certificates are denied here ({rules.by})"
            remedy = "use a CA or certificate with an RSA key of 2048 bits, or on P-256, and a SHA-256 signature"
            return Problem(reasons.WEAK_CERTIFICATE_NOT_PERMITTED, message, remedy=remedy)
        if message := too_large(tls.trust, limits(g, gateway)):
            return invalid(message)
    # The profile's minimum applies to policies that set none.
    minimum = lowest_version(g, gateway)
    lowest = tls.options.min_version or max(tls.options.lowest, minimum)
    if lowest < minimum or tls.options.max_version < minimum:
        name = "min" if lowest < minimum else "max"
        message = f"at least TLS {minimum} is required here ({backend_rules(g, gateway).by})"
        remedy = f"correct option {PREFIX}{name}-tls-version or remove it"
        return Problem(reasons.TLS_VERSION_NOT_PERMITTED, message, remedy=remedy)
    if lowest == tls.options.lowest:
        return tls
    return msgspec.structs.replace(tls, options=msgspec.structs.replace(tls.options, min_version=lowest))


def _waiver_problem(g: Graph, rules: BackendRules, waiver: Waiver) -> Problem | None:
    def refused(message: str, remedy: str) -> Problem:
        return Problem(reasons.WAIVER_NOT_PERMITTED, f"{waiver.key} {message}", remedy=remedy, about=(waiver.key,))

    if not rules.waivers:
        denied = ", ".join(rules.denies_waivers)
        why = f"waivers are not allowed (GatewayProfile {denied})" if denied else "no GatewayProfile allows waivers"
        return refused(f"has no effect here, so connections fail: {why}", "ask the operator, or fix the certificate")
    if rules.max_waiver_days is None:
        return None
    limit = f"waivers are allowed for at most {rules.max_waiver_days} days here ({rules.by})"
    if waiver.expires is None:
        return refused(f"never ends, but {limit}", "set `expires`")
    if not waiver.created:
        return refused(f"has no creation time, but {limit}", "set metadata.creationTimestamp")
    if g.before(waiver.created):
        return refused(f"was created in the future ({minute(waiver.created)})", "correct its creationTimestamp")
    last = waiver.created + rules.max_waiver_days * DAY
    if waiver.expires > last:
        return refused(f"lasts until {minute(waiver.expires)}, but {limit}", f"let it expire by {minute(last)}")
    return None


def plaintext_problem(g: Graph, hop: Hop) -> Problem | None:
    """Returns why a Gateway may not reach a backend in plaintext."""
    allowed = plaintext_rule(g, hop.gateway)
    declared = allowed is PlaintextBackends.DECLARED
    if allowed is PlaintextBackends.ALLOW or (declared and declares_plaintext(g, hop.backend, hop.port, hop.protocol)):
        return None
    rules = backend_rules(g, hop.gateway)
    denied = "plaintext is only allowed to ports that declare it" if declared else "plaintext backends are denied"
    rule = f"{denied} here ({rules.by})" if rules.profiles else "no GatewayProfile that allows plaintext can be read"
    declare = "set a plaintext protocol as appProtocol of the port" if declared else ""
    where, about = f"port {hop.port} of {hop.backend}", [hop.backend]
    if hop.protocol is Protocol.UDP:
        message, remedy = f"UDP to {where} cannot carry TLS, and {rule}", declare or "remove the backend"
    elif hop.backend.kind == XBACKEND:
        message, remedy = f"{hop.backend} has tls.mode None, and {rule}", "use ServerOnly or ClientAndServer"
    else:
        near = misaimed(g, hop.backend)
        about += (policy for policy, _ in near)
        aims = "".join(f" ({policy} names {hop.backend.kind} {name}, which does not exist)" for policy, name in near)
        message, remedy = f"no BackendTLSPolicy names {where}{aims}, and {rule}", "create a policy for it"
        remedy += f", or {declare}" if declare else ""
    return Problem(reasons.PLAINTEXT_NOT_PERMITTED, message, remedy=remedy, about=tuple(about))
