"""Validation of client certificates at a Gateway (GEP-91), by default and per port.

Fails closed: a listener that requests client certificates but has no usable CA accepts no connections.
"""

from __future__ import annotations

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api.gateway import GROUP, FrontendTLSValidation
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.listener import ClientCertificates
from lasthop.engine.plan.problem import Problem, invalid_ca_certificate_ref, invalid_kind, joined, ref_not_permitted
from lasthop.engine.resolve.backends.grants import permitted
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.trust.certificates import too_large, union
from lasthop.engine.resolve.trust.trust import CA_KINDS, KNOWN_CA_KINDS, bundle, ref_state, revokes
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

INSECURE = "AllowInsecureFallback"
RANK = (reasons.INVALID_CA_CERTIFICATE_KIND, reasons.REF_NOT_PERMITTED, reasons.INVALID_CA_CERTIFICATE_REF)
"""Ranks faults: the first one present sets the reason of the condition, whose message lists all."""


class FrontendVerdict(msgspec.Struct, frozen=True):
    """The result for one port. Conditions are set only for errors."""

    clients: ClientCertificates | None = None
    accepted: Condition | None = None
    resolved: Condition | None = None


@query
def frontend(g: Graph, key: Key, port: int) -> FrontendVerdict:
    """Returns the validation for the HTTPS listeners of a port, including those of ListenerSets."""
    obj = read(g, key, api.Gateway)
    validation, field = validation_of(obj, port) if obj else (None, "")
    if validation is None:
        return FrontendVerdict()
    usable, faulty, revoking = [], [], False
    for number, ref in enumerate(validation.ca_certificate_refs):
        namespace = "" if ref.kind == "ClusterTrustBundle" else ref.namespace or key.namespace
        local = LocalObjectReference(ref.group, ref.kind, ref.name)
        problem = _problem(g, key, ref, namespace)
        if problem is None:
            usable.append((namespace, local))
        else:
            faulty.append(problem.within(f"{field}.caCertificateRefs[{number}]"))
            revoking |= problem.reason != reasons.REF_NOT_PERMITTED and revokes(g, namespace, local)
    clients = ClientCertificates(tuple(usable), required=validation.mode != INSECURE)
    if large := _too_large(g, key, clients):
        resolved = failed(reasons.RESOLVED_REFS, invalid_ca_certificate_ref(f"{field}: {large}"))
        closed = Problem(reasons.NO_VALID_CA_CERTIFICATE, f"the listener is closed: {large}")
        return FrontendVerdict(None, failed(reasons.ACCEPTED, closed), resolved)
    if not faulty:
        return FrontendVerdict(clients)
    reason = next((ranked for ranked in RANK if any(fault.reason == ranked for fault in faulty)), faulty[0].reason)
    faults = joined(faulty, reason)
    resolved = failed(reasons.RESOLVED_REFS, faults)
    if not usable:
        where = "no valid CA remains to verify clients, so the listener is closed"
        closed = faults.within(where, reason=reasons.NO_VALID_CA_CERTIFICATE)
        return FrontendVerdict(None, failed(reasons.ACCEPTED, closed), resolved)
    if reason == reasons.INVALID_CA_CERTIFICATE_KIND or revoking:
        # An unknown kind, or a revocation list, might have narrowed the trust.
        closed = faults.within("the listener is closed", reason=reasons.INVALID)
        return FrontendVerdict(None, failed(reasons.ACCEPTED, closed), resolved)
    return FrontendVerdict(clients, None, resolved)


def _too_large(g: Graph, key: Key, clients: ClientCertificates) -> str:
    """Applies the limit of policies, because every HTTPS listener of the port holds a copy."""
    bundles = [bundle(g, namespace, ref) for namespace, ref in clients.cas]
    return too_large(union(b for b in bundles if not isinstance(b, Problem)), limits(g, key)) if bundles else ""


def validation_of(obj: api.Gateway, port: int) -> tuple[FrontendTLSValidation | None, str]:
    """Returns the validation of clients on a port, and its field. An entry for the port replaces the default, even if
    empty."""
    frontend_tls = obj.spec.tls.frontend if obj.spec.tls else None
    if frontend_tls is None:
        return None, ""
    for number, of_port in enumerate(frontend_tls.per_port):
        if of_port.port == port:
            return of_port.tls.validation, f"the Gateway's tls.frontend.perPort[{number}].tls.validation"
    return frontend_tls.default.validation, "the Gateway's tls.frontend.default.validation"


@query
def validates_clients(g: Graph, key: Key, port: int) -> bool:
    obj = read(g, key, api.Gateway)
    return bool(obj and validation_of(obj, port)[0])


def _problem(g: Graph, key: Key, ref: api.ObjectReference, namespace: str) -> Problem | None:
    if (ref.group, ref.kind) not in CA_KINDS:
        return invalid_kind(ref.kind, ref.group, f"a {KNOWN_CA_KINDS}", reasons.INVALID_CA_CERTIFICATE_KIND)
    target = Key(ref.kind, namespace, ref.name)
    # Permission before existence, so that the message reveals nothing about another namespace.
    if namespace and not permitted(g, GROUP, key, ref.group, target):
        return ref_not_permitted(key, target)
    return ref_state(g, namespace, LocalObjectReference(ref.group, ref.kind, ref.name)).problem


def insecure_mode(g: Graph, key: Key) -> Condition | None:
    """Returns the condition of a Gateway that accepts clients without a valid certificate, else None."""
    obj = read(g, key, api.Gateway)
    frontend_tls = obj.spec.tls.frontend if obj and obj.spec.tls else None
    if frontend_tls is None:
        return None
    places = [("by default", frontend_tls.default), *((f"on port {entry.port}", entry.tls) for entry in frontend_tls.per_port)]
    insecure = [where for where, tls in places if tls.validation and tls.validation.mode == INSECURE]
    if not insecure:
        return None
    message = f"clients without a valid certificate are accepted ({', '.join(insecure)}); use AllowValidOnly to refuse them"
    return true(reasons.INSECURE_FRONTEND_VALIDATION_MODE, message, reasons.CONFIGURATION_CHANGED)
