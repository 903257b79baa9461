"""What a BackendTLSPolicy asks for, and whether it can be fulfilled: mode x trust source out of `spec.validation`.

`wanted_tls` is the seam: whatever API says how a backend is verified, it ends in one `BackendTLS`.
"""

from __future__ import annotations

import ipaddress

import msgspec

from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy, BackendTLSPolicyValidation, LocalObjectReference
from lasthop.plan import reasons
from lasthop.plan.reasons import Condition, false, true
from lasthop.plan.tls import Anchors, BackendTLS, San, SanType, Trust
from lasthop.resolve.policies import options
from lasthop.resolve.trust import CA_KINDS, KNOWN_CA_KINDS, SYSTEM_REF, BadRef, bundle, ref_state, system_store
from lasthop.store.graph import Graph
from lasthop.store.store import read


class Verdict(msgspec.Struct, frozen=True):
    """What a policy is worth by itself, wherever it is used. No bytes of any bundle: a CA rotation leaves it equal."""

    accepted: Condition
    resolved: Condition
    usable_refs: tuple[LocalObjectReference, ...] = ()
    warnings: tuple[str, ...] = ()
    field: str = "spec.validation"
    """Where the first fault is."""

    @property
    def valid(self) -> bool:
        return self.accepted.status


def verdict(g: Graph, policy: Key) -> Verdict | None:
    """None where there is no such policy."""
    obj = read(g, policy, BackendTLSPolicy)
    if obj is None:
        return None
    parsed = options.parse(obj.spec.options)
    problems = list(parsed.problems) + _name_problems(obj.spec.validation)
    trust = _trust(g, policy.namespace, obj.spec.validation)
    warnings = parsed.warnings + trust.warnings
    if problems and trust.valid:
        field = "spec.options" if parsed.problems else f"spec.validation.{problems[0].split()[0]}"
        accepted = false(reasons.ACCEPTED, reasons.INVALID, "; ".join(problems))
        trust = msgspec.structs.replace(trust, accepted=accepted, field=field)
    elif problems:
        message = "; ".join([*problems, trust.accepted.message])
        trust = msgspec.structs.replace(trust, accepted=msgspec.structs.replace(trust.accepted, message=message))
    return msgspec.structs.replace(trust, warnings=warnings)


def _name_problems(validation: BackendTLSPolicyValidation) -> list[str]:
    names = [("hostname", validation.hostname)]
    names += [(f"subjectAltNames[{i}].hostname", san.hostname) for i, san in enumerate(validation.subject_alt_names)]
    return [
        f"{field} {name} is an IP address; a backend is verified by a DNS name or a URI"
        for field, name in names
        if name and _is_ip(name)
    ]


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _trust(g: Graph, namespace: str, validation: BackendTLSPolicyValidation) -> Verdict:
    refs = validation.ca_certificate_refs
    if not refs or refs == (SYSTEM_REF,):
        return _system(g, validation.well_known_ca_certificates or "System")
    if SYSTEM_REF in refs:
        message = "caCertificateRefs: the system store cannot stand beside other CAs; use wellKnownCACertificates alone"
        return Verdict(false(reasons.ACCEPTED, reasons.INVALID, message), true(reasons.RESOLVED_REFS))
    # There are three cases for each reference: a kind nobody here knows might have narrowed trust, so it fails the policy; one
    # of a known kind that cannot be used is left out; the rest are the anchors.
    unknown, bad, usable = [], [], []
    fields: list[str] = []
    warnings: list[str] = []
    for number, ref in enumerate(refs):
        field = f"caCertificateRefs[{number}]"
        if (ref.group, ref.kind) not in CA_KINDS:
            unknown.append(f"{field}: kind {ref.kind} of group {ref.group!r} is not supported; use a {KNOWN_CA_KINDS}")
            fields.append(f"spec.validation.{field}")
            continue
        state = g(ref_state, namespace, ref)
        warnings += state.warnings
        if state.problem:
            bad.append(BadRef(state.problem.reason, f"{field}: {state.problem.message}"))
            fields.append(f"spec.validation.{field}")
        else:
            usable.append(ref)
    message = "; ".join([*unknown, *(b.message for b in bad)])
    if unknown:
        accepted_reason = reasons.INVALID if usable else reasons.NO_VALID_CA_CERTIFICATE
        return Verdict(
            false(reasons.ACCEPTED, accepted_reason, f"connections fail: {message}"),
            false(reasons.RESOLVED_REFS, reasons.INVALID_KIND, message),
            warnings=tuple(warnings),
            field=fields[0],
        )
    if not bad:
        return Verdict(true(reasons.ACCEPTED), true(reasons.RESOLVED_REFS), tuple(usable), tuple(warnings))
    ref_reason = next((b.reason for b in bad if b.reason == reasons.INVALID_CA_CERTIFICATE_REF), bad[0].reason)
    resolved = false(reasons.RESOLVED_REFS, ref_reason, message)
    if usable:
        return Verdict(true(reasons.ACCEPTED), resolved, tuple(usable), tuple(warnings), fields[0])
    accepted = false(reasons.ACCEPTED, reasons.NO_VALID_CA_CERTIFICATE, f"no CA is left, connections fail: {message}")
    return Verdict(accepted, resolved, warnings=tuple(warnings), field=fields[0])


def _system(g: Graph, name: str) -> Verdict:
    resolved = true(reasons.RESOLVED_REFS)
    if name != "System":
        message = f"wellKnownCACertificates {name} is unknown here; connections fail. Use System or caCertificateRefs"
    elif system_store(g) is None:
        message = "the proxy's host has no CA bundle; connections fail. Install one (ca-certificates) or use caCertificateRefs"
    else:
        return Verdict(true(reasons.ACCEPTED), resolved)
    return Verdict(false(reasons.ACCEPTED, reasons.INVALID, message), resolved)


def wanted_tls(g: Graph, policy: Key) -> BackendTLS | None:
    """What the policy asks for, ready to use; None if it cannot be fulfilled."""
    obj, judged = read(g, policy, BackendTLSPolicy), g(verdict, policy)
    if obj is None or judged is None or not judged.valid:
        return None
    trust: Trust | None
    if judged.usable_refs:
        bundles = [g(bundle, policy.namespace, ref) for ref in judged.usable_refs]
        trust = Anchors(b"".join(dict.fromkeys(b.pem for b in bundles if not isinstance(b, BadRef))))
    else:
        trust = system_store(g)
    if trust is None:
        return None
    validation = obj.spec.validation
    return BackendTLS(
        policy=policy,
        sni=validation.hostname,
        trust=trust,
        names=_names(validation),
        options=options.parse(obj.spec.options).options,
    )


def _names(validation: BackendTLSPolicyValidation) -> tuple[San, ...]:
    """The hostname authenticates only where no subjectAltNames are given (GEP-1897)."""
    if not validation.subject_alt_names:
        return (San(SanType.DNS, validation.hostname.lower()),)
    return tuple(
        San(SanType.URI, san.uri) if san.type == "URI" else San(SanType.DNS, san.hostname.lower())
        for san in validation.subject_alt_names
    )
