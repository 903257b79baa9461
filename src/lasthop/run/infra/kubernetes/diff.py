"""Compares the cluster with the desired state and returns the actions. Pure: the reconciler does the I/O."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import Authority
from lasthop.run.infra.kubernetes import names
from lasthop.run.infra.kubernetes.desired import DesiredGateway, Site
from lasthop.run.infra.kubernetes.manifests import RESOURCES, manifests, secret
from lasthop.run.infra.kubernetes.names import object_name


class ObjectRef(NamedTuple):
    """Identifies an object that was created for a Gateway."""

    kind: str
    namespace: str
    name: str


class Apply(msgspec.Struct, frozen=True):
    ref: ObjectRef
    document: Json
    new: bool
    """It did not exist at the last listing."""


class Delete(msgspec.Struct, frozen=True):
    ref: ObjectRef
    uid: str


Action = Apply | Delete
Observed = Mapping[ObjectRef, Mapping[str, Any]]
"""The current objects with our labels."""


def diff(gateway: DesiredGateway, site: Site, authority: Authority, observed: Observed, now: float) -> list[Action]:
    """Returns the actions for one Gateway, in the order of execution. `observed` are its objects."""
    todo: list[Action] = []
    certificate = ObjectRef("Secret", gateway.key.namespace, object_name(gateway.key.name, "-xds"))
    existing = observed.get(certificate)
    if (existing is not None or not gateway.hold) and _secret_due(gateway, authority, existing, now):
        document = secret(gateway, ca.client_secret(authority, gateway.uid, now))
        todo.append(Apply(certificate, document, existing is None))
    if gateway.hold:
        return todo
    documents = {_ref(document): document for document in manifests(gateway, site)}
    todo += [
        Apply(ref, document, ref not in observed)
        for ref, document in documents.items()
        if _is_due(document, observed.get(ref))
    ]
    refs = {certificate, *documents}
    # Deletions come last: a Service whose address is no longer requested is deleted once its successor exists.
    todo.sort(key=lambda action: list(RESOURCES).index(action.ref.kind))
    return todo + [_delete(ref, current) for ref, current in observed.items() if ref not in refs]


def leftovers(gateways: Iterable[DesiredGateway], observed: Observed) -> list[Delete]:
    """Returns the deletions of objects whose Gateways are no longer ours. For deleted Gateways, Kubernetes' garbage collector
    does it."""
    uids = {gateway.uid for gateway in gateways}
    return [_delete(ref, current) for ref, current in observed.items() if uids.isdisjoint(owners(current))]


def is_ours(current: Mapping[str, Any]) -> bool:
    """Returns whether Lasthop manages the object; a user's object may have the same name."""
    return bool((current["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.MANAGER)


def owners(current: Mapping[str, Any]) -> list[str]:
    """Returns the UIDs of its Gateways: one, except briefly while a Gateway is deleted and created again."""
    references = current["metadata"].get("ownerReferences") or ()
    return [str(ref["uid"]) for ref in references if ref.get("kind") == "Gateway"]


def _is_due(document: Mapping[str, Any], current: Mapping[str, Any] | None) -> bool:
    return current is None or _hash(current) != _hash(document) or bool(current["metadata"].get("deletionTimestamp"))


def _secret_due(gateway: DesiredGateway, authority: Authority, current: Mapping[str, Any] | None, now: float) -> bool:
    if current is None or gateway.uid not in owners(current):
        return True
    labels = current["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in gateway.labels if name not in names.OWN):
        return True
    return ca.client_secret_due(authority, gateway.uid, decoded(current), now)


def decoded(current: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns a Secret's data without invalid base64."""
    data = {}
    for key, value in (current.get("data") or {}).items():
        with contextlib.suppress(ValueError):
            data[key] = base64.b64decode(value, validate=True)
    return data


def _ref(document: Mapping[str, Any]) -> ObjectRef:
    return ObjectRef(document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])


def _hash(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("annotations") or {}).get(names.HASH, ""))


def _delete(ref: ObjectRef, current: Mapping[str, Any]) -> Delete:
    return Delete(ref, str(current["metadata"].get("uid", "")))
