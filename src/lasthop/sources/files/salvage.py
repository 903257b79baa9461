"""Finds BackendTLSPolicies in a broken file, whose targets must fail closed rather than be served in plaintext.

A policy that cannot be fully decoded never counts as absent (docs/security.md#the-promises). So whatever may be meant as a
policy counts as one, and a target without a readable sectionName means every port.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from lasthop.admission.limits import MAX_TARGETS
from lasthop.admission.metadata import BEGINNING, rfc3339, uid_of
from lasthop.admission.names import is_dns_label, is_dns_subdomain
from lasthop.api.documents import Json
from lasthop.api.kinds import KINDS, SERVICE_GROUPS
from lasthop.api.meta import Key, ObjectMeta
from lasthop.api.policies import PolicyTargetReference, RejectedPolicy

_POLICY = "BackendTLSPolicy"
_SPELLINGS = {
    **dict.fromkeys(("service", "services", "svc", ""), "Service"),
    **dict.fromkeys(("serviceimport", "serviceimports", "svcimport", "svcim"), "ServiceImport"),
}


class SalvageResult(NamedTuple):
    policy: RejectedPolicy | None = None
    opaque: bool = False
    """It is, or may be, a BackendTLSPolicy, and not all of its targets could be read."""


def salvage(document: Any, place: str, message: str) -> SalvageResult:
    """Salvages one document; `place` names it if it has no name of its own."""
    if not isinstance(document, dict):
        return SalvageResult(opaque=True)
    spec = document.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    kind = document.get("kind")
    if isinstance(kind, str) and not _meant_as_policy(kind):
        # The items of a List come one by one; a List that could not be split may contain anything.
        return SalvageResult(opaque=kind.endswith("List"))
    refs = list(_references(spec))
    targets = tuple(target for ref in refs[:MAX_TARGETS] if (target := _target(ref)) is not None)
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace = metadata.get("namespace") or "default"
    if not targets or not isinstance(namespace, str) or not is_dns_label(namespace):
        return SalvageResult(opaque=True)
    written = metadata.get("name")
    name = written if isinstance(written, str) and is_dns_subdomain(written) else place
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid_of(Key(_POLICY, namespace, name)),
        generation=1,
        creation_timestamp=rfc3339(metadata.get("creationTimestamp")) or BEGINNING,
    )
    return SalvageResult(RejectedPolicy(metadata=meta, targets=targets, message=message), opaque=len(targets) < len(refs))


def _meant_as_policy(kind: str) -> bool:
    if kind in KINDS:
        return kind == _POLICY
    if len(kind) > 2 * len(_POLICY):
        return False  # it cannot be similar, and comparing would take long
    return SequenceMatcher(None, kind.casefold(), _POLICY.casefold()).ratio() > 0.7


def _references(spec: Json) -> Iterator[Any]:
    refs = spec.get("targetRefs")
    if isinstance(refs, list):
        yield from refs
    elif refs is not None:
        yield refs
    if (old := spec.get("targetRef")) is not None:  # as v1alpha2 had it
        yield old


def _target(ref: Any) -> PolicyTargetReference | None:
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str) or not ref["name"]:
        return None
    kind, group, section = (ref.get(name) for name in ("kind", "group", "sectionName"))
    kind = kind if isinstance(kind, str) else ""
    group = group if isinstance(group, str) else ""
    if meant := _SPELLINGS.get(kind.casefold()):
        kind, group = meant, SERVICE_GROUPS[meant]
    return PolicyTargetReference(group, kind, ref["name"], section if isinstance(section, str) else "")
