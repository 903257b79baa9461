"""BackendTLSPolicy.

Its structs reject unknown fields: a field that a newer bundle adds might narrow the trust or the targets. An object with an
unknown field is never partly applied: it becomes a `RejectedPolicy` and fails closed."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Object, StringMap, Struct


class Strict(Struct, forbid_unknown_fields=True, frozen=True):
    pass


class PolicyTargetReference(Strict, frozen=True):
    group: str
    kind: str
    name: str
    section_name: str = ""


class LocalObjectReference(Strict, frozen=True):
    group: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{'.' + self.group if self.group else ''} {self.name}"


class SubjectAltName(Strict, frozen=True):
    type: str
    hostname: str = ""
    uri: str = ""


class BackendTLSPolicyValidation(Strict, frozen=True):
    hostname: str
    ca_certificate_refs: tuple[LocalObjectReference, ...] = ()
    well_known_ca_certificates: str = msgspec.field(default="", name="wellKnownCACertificates")
    subject_alt_names: tuple[SubjectAltName, ...] = ()


class BackendTLSPolicySpec(Strict, frozen=True):
    target_refs: tuple[PolicyTargetReference, ...]
    validation: BackendTLSPolicyValidation
    options: StringMap = StringMap()


class AncestorReference(Struct, frozen=True):
    name: str
    namespace: str = ""
    group: str = ""
    kind: str = ""


class PolicyAncestorStatus(Struct, frozen=True):
    ancestor_ref: AncestorReference
    controller_name: str


class ForeignPolicyStatus(Struct, frozen=True):
    ancestors: tuple[PolicyAncestorStatus, ...] = ()


class BackendTLSPolicy(Object, frozen=True):
    spec: BackendTLSPolicySpec = BackendTLSPolicySpec(target_refs=(), validation=BackendTLSPolicyValidation(hostname=""))
    status: ForeignPolicyStatus = ForeignPolicyStatus()
    """Only the entries of other controllers matter: the list is shared and limited to 16, so they reduce the free entries."""


class RejectedPolicy(Object, frozen=True):
    """A BackendTLSPolicy that could not be decoded completely, under the policy's own key. Its targets fail closed."""

    targets: tuple[PolicyTargetReference, ...] = ()
    message: str = ""
    last_good: BackendTLSPolicy | None = None
    """An earlier version that stays in force for its targets."""
