"""Decides the verification of a backend: as the old gateway did or as a decision requires, never less.

    level        without a decision                              with one
    name, uri    the same names and CAs                          as decided
    host-name    the route's hostname, if it is one              any of several, or another name
    chain        TODO (a single certificate: its hash)           the name too, or a waiver of names
    others       TODO                                            CA and name, a pin, or a waiver

TODO is a policy whose CA does not exist: it fails closed, and `lasthop check` names it.
"""

from __future__ import annotations

from typing import NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.names import is_dns_subdomain
from lasthop.base.pki.parse import Certificate
from lasthop.engine.plan.strength import Strength
from lasthop.engine.resolve.trust.waivers import WAIVES
from lasthop_import.decisions import Decision, Question
from lasthop_import.levels import HopOutcome, NewState, OldLevel
from lasthop_import.model import HopTLS, InlineTrust, Name, NameKind, ServiceCA, SystemTrust, TrustRef
from lasthop_import.rule_hops import HopPort
from lasthop_import.writer.trust import PolicyAnchors

MAX_NAMES = 5
"""Maximum `subjectAltNames` of a BackendTLSPolicy."""
REASONS = {
    OldLevel.UNVERIFIED: "unverified-before",
    OldLevel.CHAIN: "name-not-checked-before",
    OldLevel.HOST_NAME: "name-unknown",
    OldLevel.IP_NAME: "name-unknown",
    OldLevel.NAME: "name-unknown",
    OldLevel.URI: "name-unknown",
    OldLevel.MESH: "mesh-before",
    OldLevel.BROKEN: "broken-before",
    OldLevel.UNKNOWN: "unknown-before",
}


NO_ANCHORS = ("ca-missing", "crl-missing", "crl-unusable", "crl-not-possible")
"""Reasons why there are no anchors to verify certificates with, so that a name alone decides nothing."""


class PortVerification(NamedTuple):
    """The requirements for the certificate of one port."""

    hostname: str
    anchors: PolicyAnchors = PolicyAnchors()
    names: tuple[Name, ...] = ()
    """Empty: the hostname."""
    pinned: tuple[Certificate, ...] = ()
    """Certificates that are trusted with their names and dates."""
    hashes: tuple[tuple[str, str], ...] = ()
    """Type and value of pins."""
    waives: str = ""
    reason: str = ""
    """Why it is TODO, in kebab-case."""
    text: str = ""
    open: bool = False
    """TODO: the policy fails closed until a decision is made."""

    @property
    def new(self) -> NewState:
        if self.open:
            return NewState(HopOutcome.TODO)
        if self.waives:
            return NewState(WAIVES[self.waives])
        if self.hashes:
            return NewState(Strength.PINNED_ONLY)
        return NewState(Strength.VERIFIED, self._by)

    @property
    def _by(self) -> str:
        if self.pinned:
            return "pinned"
        return "uri" if self.names and all(name.kind is NameKind.URI for name in self.names) else "name"


def todo(port: HopPort, tls: HopTLS, reason: str, text: str) -> PortVerification:
    return PortVerification(guessed_hostname(port, tls), reason=reason, text=text, open=True)


def guessed_hostname(port: HopPort, tls: HopTLS) -> str:
    """Returns the most likely name of the certificate: a known name, or the name of the Service."""
    candidates = [tls.sni, *(name.value for name in tls.names if name.kind is NameKind.DNS)]
    service_name = f"{port.name}.{port.namespace}.svc"
    return next((name.lower() for name in candidates if is_hostname(name.lower())), service_name)


def is_hostname(text: str) -> bool:
    return is_dns_subdomain(text) and not is_ip(text)


def as_before(port: HopPort, tls: HopTLS, anchors: PolicyAnchors) -> PortVerification:
    """Returns the verification of the old gateway if a policy can express it, else a TODO."""
    if tls.level not in (OldLevel.NAME, OldLevel.URI, OldLevel.HOST_NAME, OldLevel.CHAIN):
        return todo(port, tls, REASONS[tls.level], tls.why)
    if anchors.problem:
        return todo(port, tls, anchors.reason, anchors.problem)
    if tls.level is OldLevel.CHAIN:
        return _chain_as_before(port, tls, anchors)
    names = _writable_names(tls)
    if not names:
        return todo(port, tls, "name-unknown", f"{tls.why}; no name that a policy can hold is known")
    if tls.level is OldLevel.HOST_NAME and (len(names) > 1 or names[0].value.startswith("*.")):
        listed = ", ".join(name.value for name in names[:MAX_NAMES])
        return todo(port, tls, "several-names", f"the name was that of the request's Host, which is one of several: {listed}")
    return _by_name(port, tls, guessed_hostname(port, tls), names, anchors)


def _chain_as_before(port: HopPort, tls: HopTLS, anchors: PolicyAnchors) -> PortVerification:
    """Returns pins if single certificates are trusted as CAs. Any other chain without a name needs a decision."""
    if not anchors.leaves:
        return todo(port, tls, REASONS[tls.level], tls.why)
    hashes = tuple(("Certificate", leaf.sha256.hex()) for leaf in anchors.leaves)
    return PortVerification(guessed_hostname(port, tls), hashes=hashes)


def _by_name(port: HopPort, tls: HopTLS, hostname: str, names: tuple[Name, ...], anchors: PolicyAnchors) -> PortVerification:
    if len(names) > MAX_NAMES:
        return todo(port, tls, "too-many-names", f"{len(names)} names are more than the {MAX_NAMES} of a policy")
    return verified(hostname, names, anchors)


def verified(hostname: str, names: tuple[Name, ...], anchors: PolicyAnchors) -> PortVerification:
    """Returns the verification of chain, dates and one of the names, or of a single pinned certificate."""
    written = () if names == (Name(hostname),) else names
    if anchors.leaves:
        return PortVerification(hostname, names=written, pinned=anchors.leaves)
    return PortVerification(hostname, anchors, written)


def as_decided(
    port: HopPort, tls: HopTLS, decision: Decision, anchors: PolicyAnchors, pinned: tuple[Certificate, ...]
) -> PortVerification:
    """Returns the verification by a decision. `anchors`: the CAs of the decision, or those of the source."""
    hostname, names = _decided_names(port, tls, decision)
    if decision.waive == "All":
        return PortVerification(hostname, waives="All")
    if decision.pins:
        return PortVerification(hostname, hashes=tuple(("SPKI", pin) for pin in decision.pins))
    if not pinned and anchors.problem:
        return todo(port, tls, anchors.reason, f"the decision needs a CA: {anchors.problem}")
    if decision.waive == "Names":
        return PortVerification(hostname, anchors, pinned=pinned or anchors.leaves, waives="Names")
    if not names:
        return todo(port, tls, "name-unknown", "the decision has no hostname, and none is known")
    verification = _by_name(port, tls, hostname, names, PolicyAnchors(leaves=pinned) if pinned else anchors)
    return verification._replace(waives="Expiry") if decision.waive == "Expiry" and not verification.open else verification


def _decided_names(port: HopPort, tls: HopTLS, decision: Decision) -> tuple[str, tuple[Name, ...]]:
    """Returns the hostname of the policy and the permitted names of the certificate, by this decision."""
    hostname = decision.hostname or next((name.value for name in decision.names if is_hostname(name.value)), "")
    names = decision.names or ((Name(hostname),) if hostname else _chosen_names(port, tls, decision))
    return hostname or guessed_hostname(port, tls), names


def _writable_names(tls: HopTLS) -> tuple[Name, ...]:
    return tuple(dict.fromkeys(written for name in tls.names if (written := writable(name))))


def _chosen_names(port: HopPort, tls: HopTLS, decision: Decision) -> tuple[Name, ...]:
    if decision.choice == "any" or tls.level in (OldLevel.NAME, OldLevel.URI):
        return _writable_names(tls)
    return (Name(guessed_hostname(port, tls)),) if decision.choice == "strict" else ()


def writable(name: Name) -> Name | None:
    """Returns a name in the form of a policy; None for an IP address, an e-mail address or another wildcard."""
    if name.kind is NameKind.URI:
        return name if "://" in name.value and len(name.value) <= 253 else None
    value = name.value.lower()
    return Name(value) if is_hostname(value.removeprefix("*.")) and "*" not in value.removeprefix("*.") else None


def question(port: HopPort, tls: HopTLS, verification: PortVerification, where: str) -> Question:
    hostname = (f"hostname: {verification.hostname}",)
    waive = "Names" if tls.level is OldLevel.CHAIN else "All"
    answers: list[tuple[str, ...]] = [(_offered_ca(tls), *hostname)]
    if verification.reason == "conflict":
        answers = [("merge: true",), ("split: true",), *answers]
    elif (
        tls.level is OldLevel.CHAIN
        and not verification.anchors.problem
        and tls.trust
        and verification.reason not in NO_ANCHORS
    ):
        answers = [("names: strict", *hostname)]
    elif verification.reason == "several-names":
        answers = [("names: any",), *answers]
    answers += [("pin: {certificates: [FILE.pem]}", *hostname)]
    answers += [(f"waive: {waive}", 'reason: "why this is not verified"', "expires: EXPIRES")]
    if tls.was_plaintext:
        answers += [("plaintext: true", 'reason: "why this stays plaintext"')]
    return Question(str(port), verification.reason, f"{tls.level} ({tls.why}; {where})", verification.hostname, tuple(answers))


def _offered_ca(tls: HopTLS) -> str:
    match tls.trust:
        case (TrustRef(kind="ConfigMap", key="ca.crt") as ref,):
            return f"ca: {{configMap: {ref.name}}}"
        case (TrustRef(kind="Secret", key="ca.crt") as ref,):
            return f"ca: {{secret: {ref.name}}}"
        case (ServiceCA(),):
            return "ca: {serviceCA: true}"
        case (SystemTrust(),):
            return "ca: {system: true}"
        case (InlineTrust(),):
            return "ca: {file: CA.pem}"
        case _:
            return "ca: {configMap: NAME}"
