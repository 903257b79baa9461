"""Tells documents of other programs (Deployments, kustomizations, values of a chart) from misspelt ones of ours.

A repository holds both. What is not ours is left out; what may be meant as ours, above all as a BackendTLSPolicy, is an error,
because an object that is silently left out is verified by nobody.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lasthop.admission.structural import CLOSE
from lasthop.api.kinds import KINDS
from lasthop.suggestions import closest

CORE_KINDS: Final = frozenset(
    {
        *("Binding", "Endpoints", "Event", "LimitRange", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod"),
        *("PodTemplate", "ReplicationController", "ResourceQuota", "ServiceAccount"),
    }
)
"""Kubernetes' other kinds of `apiVersion: v1`; some are spelt like ours."""
OBJECT_FIELDS: Final = frozenset({"apiversion", "kind", "metadata", "spec", "items", "data", "targetrefs", "validation"})
"""A mapping with one of these, in any case, may be an object whose other fields were forgotten."""
KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,99}")
VERSION: Final = re.compile(r"([a-z0-9][a-z0-9.-]{0,252}/)?v[0-9][a-z0-9]{0,30}")
"""What is not even well-formed is a mistake."""
UNTYPED: Final = "without apiVersion and kind"
UNTYPED_KUSTOMIZATION: Final = "Kustomization (without kind)"
KUSTOMIZED: Final = ("resources", "bases", "components", "patches")
"""Lists of a kustomization, which may leave out its kind; in the values of a chart, `resources` is a mapping."""
NEAR_KIND: Final = 0.75
NEAR_GROUP: Final = 0.85
GROUPS: Final = frozenset(kind.group for kind in KINDS.values())


def foreign_kind(document: Any) -> str:
    """Returns what a document is that is not ours, as `Deployment (apps/v1)`; empty: it is ours, or may be meant to be."""
    if isinstance(document, list):
        # A playbook, a list of values; but not a list of objects.
        return "" if any(isinstance(each, dict) and _may_be_object(each) for each in document) else UNTYPED
    if not isinstance(document, dict):
        return ""
    kind, version = document.get("kind"), document.get("apiVersion")
    if isinstance(kind, str) and (own := KINDS.get(kind)) and version in own.api_versions:
        return ""
    if document and not _may_be_object(document):
        return UNTYPED_KUSTOMIZATION if any(isinstance(document.get(name), list) for name in KUSTOMIZED) else UNTYPED
    if not (isinstance(kind, str) and KIND.fullmatch(kind) and isinstance(version, str) and VERSION.fullmatch(version)):
        return ""
    return f"{kind} ({version})" if _is_foreign(kind, version.rpartition("/")[0]) else ""


def _may_be_object(document: dict[Any, Any]) -> bool:
    return any(isinstance(key, str) and key.casefold() in OBJECT_FIELDS for key in document)


def _is_foreign(kind: str, group: str) -> bool:
    if kind.casefold().startswith("backendtlspolic"):
        return False
    if kind in KINDS:
        own = KINDS[kind].group
        # `core/v1` is how some read the documentation of `v1`.
        return group not in GROUPS and group != "core" and bool(group) and not _near(group, own, NEAR_KIND)
    meant = closest(kind, KINDS, CLOSE)
    if not meant or (not group and kind in CORE_KINDS):
        return True
    return group not in GROUPS and not _near(group, KINDS[meant].group, NEAR_GROUP)


def _near(text: str, other: str, cutoff: float) -> bool:
    return bool(other) and bool(closest(text, (other,), cutoff))
