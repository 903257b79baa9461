"""Checks and completes metadata like an API server; the rules are the same for every kind.

Age without a cluster: a written `creationTimestamp` is respected. An object without one gets 1970-01-01T00:00:00Z, whenever
its file is read, and counts as younger than every object with one (`Object.age`), so that a new file takes nothing over. Among
such objects {namespace}/{name} decides every conflict, before and after a restart. A rule that limits an object's age rejects
an object without a `creationTimestamp`.

`uid` is derived from kind, namespace and name. Fields that only an API server may write (resourceVersion, managedFields and so
on) are accepted and ignored, so that output of `kubectl get -o yaml` can be pasted.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import SERVICE_GROUPS, Kind
from lasthop.base.api.meta import UNDATED, Key
from lasthop.base.api.names import DNS_LABEL, DNS_SUBDOMAIN, is_dns_label, is_dns_subdomain, is_label_value, is_qualified_name
from lasthop.edge.admission.limits import MAX_ANNOTATIONS
from lasthop.edge.admission.problem import FieldProblem, Path, Problems, shown
from lasthop.edge.admission.structural import unknown_field
from lasthop.engine.plan import reasons

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"

_READ: Final = ("name", "namespace", "labels", "annotations", "creationTimestamp")
_IGNORED: Final = (
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
METADATA_FIELDS: Final = frozenset((*_READ, *_IGNORED))
_UIDS: Final = uuid.UUID("6f0a7a5e-32c5-5bd5-9c9b-1f5b9f6f6c11")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[-+]\d\d:\d\d)")


def uid_of(key: Key) -> str:
    return str(uuid.uuid5(_UIDS, f"{key.kind}/{key.namespace}/{key.name}"))


def completed(kind: Kind, metadata: Any, problems: Problems) -> tuple[Key, Json]:
    """Returns the object's key and its metadata as an API server would store it. Adds to `problems`."""
    if not isinstance(metadata, dict):
        missing = metadata is None
        problems.append(
            FieldProblem("required field is missing" if missing else "must be a mapping", ("metadata",), "Give it a name.")
        )
        return Key(kind.kind, "", ""), {}
    for name in metadata:
        if name not in _READ and name not in _IGNORED and not problems.full:
            problems.append(unknown_field(name, _READ, ("metadata",)))
    key = Key(kind.kind, _namespace(kind, metadata, problems), _name(kind, metadata, problems))
    result: Json = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": uid_of(key),
        "generation": 1,
        "creationTimestamp": _created(metadata.get("creationTimestamp"), problems),
        "labels": _labels(metadata.get("labels"), problems),
        "annotations": _annotations(metadata.get("annotations"), problems),
    }
    if kind.kind == "Namespace":
        result["labels"][NAMESPACE_LABEL] = key.name
    return key, result


def _name(kind: Kind, metadata: Json, problems: Problems) -> str:
    name = metadata.get("name")
    path = ("metadata", "name")
    if name is None:
        remedy = "A file needs `name`; generateName works only in a cluster." if "generateName" in metadata else ""
        problems.append(FieldProblem("required field is missing", path, remedy, reasons.REQUIRED))
    elif not isinstance(name, str):
        problems.append(FieldProblem("must be a string", path, "Put it in quotes."))
    elif kind.kind == "ClusterTrustBundle":
        pass  # depends on its signer, so builtin.py checks it
    elif kind.kind in ("Namespace", *SERVICE_GROUPS):
        if not is_dns_label(name):
            problems.append(FieldProblem(f"{shown(name)} is not a valid name", path, f"Use {DNS_LABEL}."))
    elif not is_dns_subdomain(name):
        problems.append(FieldProblem(f"{shown(name)} is not a valid name", path, f"Use {DNS_SUBDOMAIN}."))
    return name if isinstance(name, str) else ""


def _namespace(kind: Kind, metadata: Json, problems: Problems) -> str:
    namespace = metadata.get("namespace")
    path = ("metadata", "namespace")
    if not kind.namespaced:
        if namespace:
            problems.append(FieldProblem(f"a {kind.kind} is not namespaced", path, "Remove the field."))
        return ""
    if namespace is None or namespace == "":
        return "default"
    if not isinstance(namespace, str):
        problems.append(FieldProblem("must be a string", path, "Put it in quotes."))
        return ""
    if not is_dns_label(namespace):
        problems.append(FieldProblem(f"{shown(namespace)} is not a valid namespace", path, f"Use {DNS_LABEL}."))
    return namespace


def _labels(labels: Any, problems: Problems) -> dict[str, str]:
    path = ("metadata", "labels")
    result = _strings(labels, path, problems)
    for key, value in result.items():
        if not is_label_value(value):
            problems.append(FieldProblem(f"{shown(value)} is not a valid label value", (*path, key)))
    return result


def _annotations(annotations: Any, problems: Problems) -> dict[str, str]:
    path = ("metadata", "annotations")
    result = _strings(annotations, path, problems)
    if sum(len(k.encode()) + len(v.encode()) for k, v in result.items()) > MAX_ANNOTATIONS:
        problems.append(FieldProblem(f"annotations are larger than {MAX_ANNOTATIONS} bytes", path, reason=reasons.TOO_LARGE))
    return result


def _strings(values: Any, path: Path, problems: Problems) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        problems.append(FieldProblem("must be a mapping", path))
        return {}
    result = {}
    for key, value in values.items():
        if not is_qualified_name(key):
            remedy = "Use `name` or `prefix.example/name`, the name at most 63 characters."
            problems.append(FieldProblem(f"{shown(key)} is not a valid key", (*path, key), remedy))
        if isinstance(value, str):
            result[key] = value
        else:
            problems.append(FieldProblem("must be a string", (*path, key), "Put it in quotes."))
    return result


def _created(written: Any, problems: Problems) -> str:
    if written is None:
        return UNDATED
    if moment := rfc3339(written):
        return moment
    remedy = "Write it like 2027-01-31T00:00:00Z."
    problems.append(FieldProblem(f"{shown(written)} is not an RFC 3339 time", ("metadata", "creationTimestamp"), remedy))
    return UNDATED


def rfc3339(written: Any) -> str:
    """Returns a time in UTC, in seconds, so that text order is time order; empty if it is not an RFC 3339 time."""
    if not isinstance(written, str) or not _RFC3339.fullmatch(written):
        return ""
    try:
        moment = datetime.fromisoformat(written.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
