"""Decodes the API server's JSON: the typed object, its version, and its status as bytes.

Only the parts that a gateway needs stay in memory: `READ_KEYS` of Secrets and ConfigMaps, labels and address of Pods. The last
manager in managedFields is kept for the record of changes. All undeclared fields are dropped with the JSON. A BackendTLSPolicy
that cannot be decoded completely becomes a `RejectedPolicy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lasthop.base.api import core
from lasthop.base.api.backends import XBackend
from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME, READ_KINDS, decode_json, has_status
from lasthop.base.api.meta import BytesMap, Key, Object, ObjectMeta, StringMap
from lasthop.base.api.policies import BackendTLSPolicy, ForeignPolicyStatus, PolicyTargetReference, RejectedPolicy
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.edge.kubernetes.observed import ObservedStatus
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding

T = TypeVar("T")
POLICY: Final = "BackendTLSPolicy"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the whole object."""
_FIELD_SELECTORS: Final = {"Secret": "type!=helm.sh/release.v1"}
"""Excludes Helm's releases, which are many and large, and never contain a certificate."""

_READY: Final = core.PodCondition("Ready", "True")

replace = msgspec.structs.replace

Shared = BackendTLSPolicy | XBackend | XBackendTrafficPolicy | XTelemetryPolicy
"""Kinds whose status contains a list that controllers share."""


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class ObjectList(msgspec.Struct):
    """Represents a page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class DecodedObject(NamedTuple):
    key: Key
    object: Object | None
    """The object for the store; None if it cannot be decoded."""
    status: ObservedStatus | None = None
    """Its current status, for kinds whose status we write."""
    problem: Finding | None = None
    opaque: bool = False
    """The object is a BackendTLSPolicy whose targets could not all be read."""
    document: Json | None = None
    """The object as received, for commands that show it."""
    author: str = ""
    """The manager that last wrote its spec or data, as `kubectl (Update, 2026-11-18T12:00:00Z)`; empty if unknown."""


class _ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Managed(msgspec.Struct, rename="camel", gc=False):
    manager: str = ""
    operation: str = ""
    time: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default=msgspec.Raw())

    @property
    def owns_content(self) -> bool:
        return any(name in bytes(self.fields) for name in (b'"f:spec"', b'"f:data"', b'"f:binaryData"'))


class _Envelope(msgspec.Struct, gc=False):
    metadata: _ObjectMeta
    status: msgspec.Raw = msgspec.Raw()


_envelope: Final = msgspec.json.Decoder(_Envelope)
_managed: Final = msgspec.json.Decoder(list[_Managed])
UNATTRIBUTED: Final = ("Pod", "EndpointSlice")
"""Kinds without a recorded author, because the cluster writes them all the time."""
_WITH_STATUS: Final = frozenset(name for name, kind in READ_KINDS.items() if has_status(kind))


def selector(kind: str) -> dict[str, str]:
    fields = _FIELD_SELECTORS.get(kind)
    return {"fieldSelector": fields} if fields else {}


def identify(kind: str, content: bytes | msgspec.Raw) -> tuple[Key, str]:
    meta = _envelope.decode(content).metadata
    return Key(kind, meta.namespace, meta.name), meta.resource_version


def observed_status(content: bytes) -> ObservedStatus:
    """Returns the status in the server's response. Raises `msgspec.DecodeError`."""
    return _observed(_envelope.decode(content))


def _observed(envelope: _Envelope) -> ObservedStatus:
    meta = envelope.metadata
    return ObservedStatus(meta.resource_version, bytes(envelope.status), meta.generation)


def author_of(managed_fields: bytes | msgspec.Raw) -> str:
    """Returns the manager of the latest write of spec or data, else of the latest write of another part than the status; empty
    if unknown. A manager is the name that a program gives itself; the server does not reveal the user."""
    if not bytes(managed_fields):
        return ""
    try:
        entries = [entry for entry in _managed.decode(managed_fields) if not entry.subresource]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    latest = max([entry for entry in entries if entry.owns_content] or entries, key=lambda entry: entry.time, default=None)
    return f"{latest.manager} ({latest.operation}, {latest.time})" if latest else ""


def read_object(kind: str, content: bytes | msgspec.Raw) -> DecodedObject:
    """Decodes one object. Never raises for its content: an object that cannot be decoded is absent, with a problem."""
    envelope = _envelope.decode(content)
    key = Key(kind, envelope.metadata.namespace, envelope.metadata.name)
    status = _observed(envelope) if kind in _WITH_STATUS else None
    author = author_of(envelope.metadata.managed_fields) if kind not in UNATTRIBUTED else ""
    try:
        return DecodedObject(key, trimmed(kind, decode_json(kind, bytes(content))), status, author=author)
    except (msgspec.ValidationError, ValueError) as error:
        if kind != POLICY:
            return DecodedObject(key, None, status, _unreadable(key, str(error)), author=author)
        rejected, complete = _rejected(msgspec.json.decode(content), str(error))
        problem = _unreadable(key, rejected.message, remedy="Use a field that this version knows, or upgrade Lasthop.")
        return DecodedObject(key, rejected, status, problem, opaque=not complete, author=author)


def trimmed(kind: str, obj: Object) -> Object:
    """Returns the object without unused parts, so that their changes are ignored."""
    match obj:
        case core.Secret():
            return core.Secret(metadata=_bare(obj.metadata), type=obj.type, data=BytesMap(_read_keys(kind, obj.data)))
        case core.ConfigMap():
            return core.ConfigMap(metadata=_bare(obj.metadata), data=StringMap(_read_keys(kind, obj.data)))
        case core.Pod():
            return _trimmed_pod(obj)
        case core.EndpointSlice():
            return replace(obj, metadata=replace(obj.metadata, annotations=StringMap(), generation=0))
        case BackendTLSPolicy() | XBackend() | XBackendTrafficPolicy() | XTelemetryPolicy():
            obj = _without_our_status(obj)
    return _without_copy(obj) if obj.metadata.annotations.get(LAST_APPLIED) else obj


def _read_keys(kind: str, data: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    return (pair for pair in data if pair[0] in core.READ_KEYS[kind])


def _trimmed_pod(pod: core.Pod) -> core.Pod:
    """Keeps only readiness and address, because a Pod's status changes often."""
    status = core.PodStatus((core.PodIP(pod.address),), conditions=(_READY,)) if pod.address else core.PodStatus()
    meta = core.PodMeta(pod.metadata.name, pod.metadata.namespace, labels=pod.metadata.labels)
    return core.Pod(metadata=meta, status=status)


def _without_copy(obj: Object) -> Object:
    """Returns the object without kubectl's copy of it."""
    annotations = StringMap(pair for pair in obj.metadata.annotations if pair[0] != LAST_APPLIED)
    return replace(obj, metadata=replace(obj.metadata, annotations=annotations))


def _without_our_status(obj: Shared) -> Shared:
    """Returns the object without our own status entries, so that our own write changes nothing."""
    entries = obj.status.ancestors
    foreign = tuple(entry for entry in entries if entry.controller_name != CONTROLLER_NAME)
    return obj if len(foreign) == len(entries) else replace(obj, status=ForeignPolicyStatus(foreign))


def _bare(meta: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(meta.name, meta.namespace, meta.uid, creation_timestamp=meta.creation_timestamp)


def _unreadable(key: Key, message: str, remedy: str = "") -> Finding:
    return make_finding(key, reasons.UNREADABLE, f"cannot be fully decoded, so it is rejected: {message}", remedy)


def _rejected(document: Any, error: str) -> tuple[RejectedPolicy, bool]:
    """Returns the readable part of the policy, and whether all its targets are known."""
    meta, spec = document.get("metadata") or {}, document.get("spec") or {}
    refs = spec.get("targetRefs") if isinstance(spec, dict) else None
    refs = refs if isinstance(refs, list) else []
    targets = [target for ref in refs if (target := _target(ref)) is not None]
    metadata = ObjectMeta(
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        generation=meta.get("generation", 0),
        creation_timestamp=meta.get("creationTimestamp") or "",
    )
    complete = bool(refs) and len(targets) == len(refs) and not any(map(_may_target, spec))
    return RejectedPolicy(metadata=metadata, targets=tuple(targets), message=error), complete


def _may_target(field: str) -> bool:
    """Returns whether a field of a later version may name further targets, as `targetSelectors` does elsewhere."""
    return field != "targetRefs" and ("target" in field.casefold() or "select" in field.casefold())


def _target(ref: Any) -> PolicyTargetReference | None:
    """Returns the target of a reference. An unknown field may narrow the target, so it then counts for the whole object."""
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str) or not isinstance(ref.get("kind"), str):
        return None
    understood = ref.keys() <= {"group", "kind", "name", "sectionName"}
    section = ref.get("sectionName") or ""
    return PolicyTargetReference(ref.get("group") or "", ref["kind"], ref["name"], section if understood else "")
