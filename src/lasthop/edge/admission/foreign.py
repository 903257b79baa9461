"""Distinguishes documents of other programs (Deployments, kustomizations, chart values) from misspelt documents of ours.

A repository contains both. Documents of other programs are skipped. A document that may be meant for Lasthop, above all a
BackendTLSPolicy, is an error, because without its policy a backend would be served in plaintext.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from lasthop.base.api.kinds import EXPERIMENTAL_API, KINDS, MULTICLUSTER_API
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.problem import Path
from lasthop.edge.admission.structural import CLOSE

CORE_KINDS: Final = (
    *("Binding", "ComponentStatus", "Config", "DeleteOptions", "Endpoints", "Event", "LimitRange", "Node"),
    *("PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota"),
    *("ServiceAccount", "Status"),
)
"""Kubernetes' other kinds of `apiVersion: v1`, and kubectl's configuration; some are spelt like ours."""
KNOWN_FOREIGN: Final = {
    "": frozenset(CORE_KINDS),
    "certificates.k8s.io": frozenset({"CertificateSigningRequest", "PodCertificateRequest"}),
    MULTICLUSTER_API: frozenset({"ServiceExport"}),
    EXPERIMENTAL_API: frozenset({"XListenerSet"}),
}
"""Foreign kinds by group, for groups that contain kinds of ours. Every other kind of these groups is a typo, or too new."""
POLICY: Final = "BackendTLSPolicy"
POLICY_WORD: Final = "backendtls"
"""A part that every misspelt kind of a policy contains, in lower case."""
SPEC_FIELDS: Final = ("targetRefs", "validation")
"""Fields that only a policy has."""
_WRITTEN_POLICY: Final = re.compile(rf"kind[\"']?\s*:\s*[\"']?[\w-]*{POLICY_WORD}", re.IGNORECASE)
"""Matches the kind of a policy inside a text."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the whole object."""
PROFILE_FIELD: Final = "backendTLS"
"""A field of GatewayProfile with a similar name."""
OBJECT_FIELDS: Final = frozenset({"apiversion", "kind", "metadata", "spec", "items", "data", "targetrefs", "validation"})
"""A mapping with one of these keys, in any case, may be an object that lacks its other fields."""
KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,99}")
VERSION: Final = re.compile(r"([a-z0-9][a-z0-9.-]{0,252}/)?v[0-9][a-z0-9]{0,30}")
"""Patterns of well-formed kinds and versions. A malformed one is a typo."""
UNTYPED: Final = "without apiVersion and kind"
UNTYPED_KUSTOMIZATION: Final = "Kustomization (without kind)"
KUSTOMIZED: Final = ("resources", "bases", "components", "patches")
"""Lists in a kustomization, which may omit its kind. In chart values, `resources` is a mapping."""
LONGEST: Final = 100
"""Characters of a word that is compared with others: longer words take long to compare and match nothing."""
NEAR_KIND: Final = 0.75
NEAR_GROUP: Final = 0.85
GROUPS: Final = frozenset(kind.group for kind in KINDS.values())


def foreign_kind(document: Any) -> str:
    """Returns the kind of a foreign document, such as `Deployment (apps/v1)`; empty if the document is or may be meant for
    Lasthop."""
    if isinstance(document, list):
        # A playbook or a list of values, unless it is a list of objects.
        return "" if any(map(_may_be_object, document)) else UNTYPED
    if not isinstance(document, dict) or _is_ours(document) or is_list(document):
        return ""
    if document and not _may_be_object(document):
        return UNTYPED_KUSTOMIZATION if any(isinstance(document.get(name), list) for name in KUSTOMIZED) else UNTYPED
    return _typed(document.get("kind"), document.get("apiVersion"))


def _typed(kind: Any, version: Any) -> str:
    if not isinstance(kind, str) or not isinstance(version, str):
        return ""
    well_formed = KIND.fullmatch(kind) and VERSION.fullmatch(version)
    return f"{kind} ({version})" if well_formed and _is_foreign(kind, version.rpartition("/")[0]) else ""


def _is_ours(document: dict[Any, Any]) -> bool:
    kind = document.get("kind")
    served = KINDS.get(kind) if isinstance(kind, str) else None
    return served is not None and document.get("apiVersion") in served.api_versions


def meant_as_policy(kind: str) -> bool:
    """Returns whether a kind may be a misspelt BackendTLSPolicy: a kind for which a message suggests it, or a similar one."""
    if kind in KINDS:
        return kind == POLICY
    # difflib's similarity depends on the order.
    return _suggests_policy(kind) or any(_near(*pair, CLOSE) for pair in ((kind, POLICY), (POLICY, kind)))


def _suggests_policy(kind: str) -> bool:
    return POLICY_WORD in kind.casefold() or _closest_kind(kind) == POLICY


def _closest_kind(kind: str) -> str:
    return closest(kind, KINDS, CLOSE) if len(kind) <= LONGEST else ""


def is_list(document: dict[Any, Any]) -> bool:
    """Returns whether a document is meant as a List of objects, by its kind and, if that is ambiguous, its group."""
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not kind.casefold().endswith("list"):
        return False
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    return group in GROUPS or kind.casefold() == "list"


def embedded_policy(document: Any) -> Path | None:
    """Returns the path of a BackendTLSPolicy inside a document, as an object or a text; None without one. An unclosed quote
    swallows the documents after it. A mere mention of the kind, as in a role or a CRD, is not a policy."""
    below: list[tuple[Path, Any]] = [((), document)]
    while below:
        path, value = below.pop()
        if path and isinstance(value, dict) and _looks_like_policy(value):
            return path
        texts = (value,) if isinstance(value, str) else value if isinstance(value, dict) else ()
        if any(map(_writes_policy, texts)):
            return path
        below += [((*path, key), child) for key, child in _inside(value)]
    return None


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, list):
        return enumerate(value)
    return [(key, child) for key, child in value.items() if key != LAST_APPLIED] if isinstance(value, dict) else ()


def _writes_policy(text: str) -> bool:
    return bool(_WRITTEN_POLICY.search(text)) or all(name in text for name in SPEC_FIELDS)


def may_embed_policy(text: bytes, values: Iterable[Any]) -> bool:
    """Returns whether a text may contain policies inside other objects. Compares the number of occurrences of the kind and of
    its fields with the number of policies. A walk through every value would take a tenth of the file's reading time."""
    policies = len([value for value in values if isinstance(value, dict) and value.get("kind") == POLICY])
    written = _WRITTEN_POLICY.findall(text.decode(errors="replace"))
    # The items of a typed List may omit their kind.
    typed = f"{POLICY}List".encode() in text
    return typed or len(written) != policies or min(text.count(name.encode()) for name in SPEC_FIELDS) > policies


def _looks_like_policy(mapping: dict[Any, Any]) -> bool:
    kind, spec = mapping.get("kind"), mapping.get("spec")
    if isinstance(spec, dict) and spec.keys() >= set(SPEC_FIELDS):
        return True
    return isinstance(kind, str) and not {"metadata", "spec"}.isdisjoint(map(str.casefold, mapping)) and _suggests_policy(kind)


def mentions_policy(value: Any) -> bool:
    """Returns whether a key or text inside a value contains the policy word."""
    below = [value]
    while below:
        match below.pop():
            case dict() as mapping:
                below += [*(key for key in mapping if key != PROFILE_FIELD), *mapping.values()]
            case list() as items:
                below += items
            case str() as text if POLICY_WORD in text.casefold():
                return True
    return False


def _may_be_object(document: Any) -> bool:
    keys = document if isinstance(document, dict) else ()
    return any(isinstance(key, str) and key.casefold() in OBJECT_FIELDS for key in keys)


def _is_foreign(kind: str, group: str) -> bool:
    if kind.casefold().startswith(POLICY_WORD):
        return False
    if kind in KINDS:
        # Some readers of the documentation write `core/v1` for `v1`.
        return group not in GROUPS and group != "core" and bool(group) and not _near(group, KINDS[kind].group, NEAR_KIND)
    if group in GROUPS:
        return kind in KNOWN_FOREIGN.get(group, ())
    suggestion = _closest_kind(kind)
    return not suggestion or not _near(group, KINDS[suggestion].group, NEAR_GROUP)


def _near(text: str, candidate: str, cutoff: float) -> bool:
    return bool(candidate) and len(text) + len(candidate) <= 2 * LONGEST and bool(closest(text, (candidate,), cutoff))
