"""What to do so that the cluster has what is wanted: a pure comparison, the I/O is the reconciler's."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from lasthop.api.documents import Json
from lasthop.infra.kubernetes import names
from lasthop.infra.kubernetes.manifests import RESOURCES, manifests, secret
from lasthop.infra.kubernetes.names import object_name
from lasthop.infra.kubernetes.wanted import Site, Wanted
from lasthop.pki import authority as ca
from lasthop.pki.authority import Authority


class Made(NamedTuple):
    """An object that was made for a Gateway."""

    kind: str
    namespace: str
    name: str


class Apply(msgspec.Struct, frozen=True):
    made: Made
    document: Json
    new: bool
    """It was not there when we last looked."""


class Delete(msgspec.Struct, frozen=True):
    made: Made
    uid: str


Action = Apply | Delete
Observed = Mapping[Made, Mapping[str, Any]]
"""The objects with our labels, as they stand."""


def actions(gateway: Wanted, site: Site, authority: Authority, observed: Observed, now: float) -> list[Action]:
    """For one Gateway, in the order in which they are to be done. `observed` is what belongs to it."""
    todo: list[Action] = []
    certificate = Made("Secret", gateway.key.namespace, object_name(gateway.key.name, "-xds"))
    held = observed.get(certificate)
    if (held is not None or not gateway.hold) and _secret_due(gateway, authority, held, now):
        document = secret(gateway, ca.client_secret(authority, gateway.uid, now))
        todo.append(Apply(certificate, document, held is None))
    if gateway.hold:
        return todo
    for document in manifests(gateway, site):
        made = _made(document)
        there = observed.get(made)
        if there is None or _hash(there) != _hash(document) or there["metadata"].get("deletionTimestamp"):
            todo.append(Apply(made, document, there is None))
    wanted = {certificate, *(_made(document) for document in manifests(gateway, site))}
    # Last: a Service whose address was given up goes when its successor stands.
    todo.sort(key=lambda action: list(RESOURCES).index(action.made.kind))
    return todo + [_delete(made, there) for made, there in observed.items() if made not in wanted]


def leftovers(gateways: Iterable[Wanted], observed: Observed) -> list[Delete]:
    """Of Gateways that are no longer ours. With those that were deleted, Kubernetes does the same by the owner references."""
    uids = {gateway.uid for gateway in gateways}
    return [_delete(made, there) for made, there in observed.items() if uids.isdisjoint(owners(there))]


def is_ours(there: Mapping[str, Any]) -> bool:
    """Somebody's own object may have the name that we would give."""
    return bool((there["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.MANAGER)


def owners(there: Mapping[str, Any]) -> list[str]:
    """UIDs of the Gateways for which it was made: one, but for a moment when a Gateway is deleted and made anew."""
    references = there["metadata"].get("ownerReferences") or ()
    return [str(ref["uid"]) for ref in references if ref.get("kind") == "Gateway"]


def _secret_due(gateway: Wanted, authority: Authority, there: Mapping[str, Any] | None, now: float) -> bool:
    if there is None or gateway.uid not in owners(there):
        return True
    labels = there["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in gateway.labels if name not in names.OWN):
        return True
    return ca.client_secret_due(authority, gateway.uid, decoded(there), now)


def decoded(there: Mapping[str, Any]) -> dict[str, bytes]:
    """A Secret's content; what is not base64 is left out."""
    found = {}
    for key, value in (there.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue
    return found


def _made(document: Mapping[str, Any]) -> Made:
    return Made(document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])


def _hash(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("annotations") or {}).get(names.HASH, ""))


def _delete(made: Made, there: Mapping[str, Any]) -> Delete:
    return Delete(made, str(there["metadata"].get("uid", "")))
