"""Finds BackendTLSPolicies in a broken file, whose targets must fail closed instead of being served in plaintext.

A policy that cannot be fully decoded never counts as absent (docs/security.md#the-promises). Every document that may be meant
as a policy counts as one, and a target without a readable sectionName means every port. A document is opaque if the Services
or the namespace of its policy are uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import GATEWAY_API, KINDS, SERVICE_GROUPS
from lasthop.base.api.meta import UNDATED, Key, ObjectMeta
from lasthop.base.api.names import is_dns_label, is_dns_subdomain
from lasthop.base.api.policies import PolicyTargetReference, RejectedPolicy
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.foreign import POLICY, is_list, meant_as_policy, mentions_policy
from lasthop.edge.admission.limits import MAX_TARGETS
from lasthop.edge.admission.metadata import METADATA_FIELDS, rfc3339, uid_of

_SPELLINGS: Final = {
    **dict.fromkeys(("service", "services", "svc", ""), "Service"),
    **dict.fromkeys(("serviceimport", "serviceimports", "svcimport", "svcim"), "ServiceImport"),
}
_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_SPEC_FIELDS: Final = frozenset({"targetRefs", "targetRef", "validation", "options", "tls"})
_TARGETS: Final = ("targetRefs", "targetRef")
"""The second is the field of v1alpha2."""
_TARGET_FIELDS: Final = ("group", "kind", "name", "sectionName", "namespace")


class SalvageResult(NamedTuple):
    policy: RejectedPolicy | None = None
    opaque: str | None = None
    """The namespace in which it may have further targets, empty for any; None if it has no others."""


OPAQUE_EVERYWHERE: Final = SalvageResult(opaque="")


def salvage(document: Any, place: str, message: str, *, last: bool = False) -> SalvageResult:
    """Salvages one document; `place` names it if it has no name. The `last` one of a text may have been cut off, so its last
    field may be incomplete."""
    if not isinstance(document, dict) or is_list(document):
        return OPAQUE_EVERYWHERE
    kind = document.get("kind")
    if isinstance(kind, str) and not meant_as_policy(kind):
        return OPAQUE_EVERYWHERE if _may_hide_policy(document, kind) else SalvageResult()
    namespace = _namespace(document)
    if namespace is None or (last and _ends_in(document, "metadata")):
        return OPAQUE_EVERYWHERE
    targets, certain = _targets(document.get("spec"), cut_off=last and _ends_in(document, "spec"))
    elsewhere = _elsewhere(document.get("spec"), namespace)
    opaque = elsewhere if certain else namespace if elsewhere is None else ""
    if not targets:
        return SalvageResult(opaque=opaque)
    meta = _metadata(document["metadata"], namespace, place)
    return SalvageResult(RejectedPolicy(metadata=meta, targets=targets, message=message), opaque)


def _may_hide_policy(document: Json, kind: str) -> bool:
    """Returns whether a document of another kind may contain a policy, or be a policy of an unknown kind."""
    return (kind not in KINDS and GATEWAY_API in str(document.get("apiVersion"))) or mentions_policy(document)


def _metadata(metadata: Json, namespace: str, place: str) -> ObjectMeta:
    written_name, created = metadata.get("name"), metadata.get("creationTimestamp")
    name = written_name if isinstance(written_name, str) and is_dns_subdomain(written_name) else place
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid_of(Key(POLICY, namespace, name)),
        generation=1,
        # An unreadable date makes the policy the oldest, because a younger policy would lose to another one.
        creation_timestamp=UNDATED if created is None else rfc3339(created),
    )


def _targets(spec: Any, *, cut_off: bool) -> tuple[tuple[PolicyTargetReference, ...], bool]:
    """Returns the readable targets, and whether there are certainly no others. `cut_off`: the text may end within the spec."""
    if not isinstance(spec, dict):
        return (), False
    refs = list(_references(spec))
    targets = tuple(target for ref in refs[:MAX_TARGETS] if (target := _target(ref)) is not None)
    certain = bool(targets) and len(targets) == len(refs) and not _mistyped_targets(spec)
    return targets, certain and not (cut_off and _ends_in(spec, *_TARGETS))


def _namespace(document: Json) -> str | None:
    """Returns the namespace of a policy; None if it is uncertain, because an unknown field may be a mistyped or misplaced
    `namespace`."""
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not document.keys() <= _FIELDS:
        return None
    namespace = metadata.get("namespace")
    if namespace is None:
        certain = metadata.keys() <= METADATA_FIELDS and not (isinstance(spec, dict) and spec.keys() - _SPEC_FIELDS)
        return "default" if certain else None
    return namespace if isinstance(namespace, str) and is_dns_label(namespace) else None


def _ends_in(mapping: Json, *names: str) -> bool:
    return next(reversed(mapping), "") in names


def _references(spec: Json) -> Iterator[Any]:
    for name in _TARGETS:
        refs = spec.get(name)
        if isinstance(refs, list):
            yield from refs
        elif refs is not None:
            yield refs


def _elsewhere(spec: Any, namespace: str) -> str | None:
    """Returns the other namespace that targets name, although a target has no such field; empty if it is uncertain, None if
    they name no other."""
    refs = [ref for ref in _references(spec) if isinstance(ref, dict)] if isinstance(spec, dict) else []
    named = [value for ref in refs for field, value in ref.items() if closest(field, _TARGET_FIELDS) == "namespace"]
    namespaces = [value for value in named if value != namespace]
    if not namespaces:
        return None
    first = namespaces[0]
    return first if isinstance(first, str) and is_dns_label(first) and namespaces.count(first) == len(namespaces) else ""


def _mistyped_targets(spec: Json) -> bool:
    return any(name not in _TARGETS and closest(name, _TARGETS) for name in spec)


def _target(ref: Any) -> PolicyTargetReference | None:
    """Returns the target of a reference; None if it may mean another Service."""
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str) or not is_dns_label(ref["name"]):
        return None
    kind, group, section = (ref.get(name) for name in ("kind", "group", "sectionName"))
    kind = kind if isinstance(kind, str) else ""
    group = group if isinstance(group, str) else ""
    if service_kind := _SPELLINGS.get(kind.casefold()):
        kind, group = service_kind, SERVICE_GROUPS[service_kind]
    elif closest(kind, SERVICE_GROUPS):
        return None
    return PolicyTargetReference(group, kind, ref["name"], section if isinstance(section, str) else "")
