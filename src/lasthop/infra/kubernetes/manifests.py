"""Everything that is made for a Gateway, as documents to apply. Pure: equal input gives equal documents."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lasthop.api.documents import Json
from lasthop.api.gateway import GROUP
from lasthop.infra.kubernetes import names
from lasthop.infra.kubernetes.names import object_name, selector
from lasthop.infra.kubernetes.pods import deployment_spec
from lasthop.infra.kubernetes.services import service_specs
from lasthop.infra.kubernetes.wanted import Site, Wanted

RESOURCES: Final = {
    # kind: (group, version, plural), in the order in which they are applied
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Secret": ("", "v1", "secrets"),
    "Service": ("", "v1", "services"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Deployment": ("apps", "v1", "deployments"),
}


def manifests(gateway: Wanted, site: Site) -> list[Json]:
    """All but the Secret, whose content is not a matter of what is wanted but of time."""
    name = object_name(gateway.key.name)
    services = [_document(gateway, "Service", found, spec=spec) for found, spec in service_specs(gateway).items()]
    labels, annotations = _labels(gateway), dict(gateway.annotations)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": selector(gateway.key.name)}}
    return [
        _document(gateway, "ServiceAccount", name, automountServiceAccountToken=False),
        *services,
        _document(gateway, "PodDisruptionBudget", name, spec=budget),
        _document(gateway, "Deployment", name, spec=deployment_spec(gateway, site, labels, annotations)),
    ]


def secret(gateway: Wanted, data: Mapping[str, bytes]) -> Json:
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    name = object_name(gateway.key.name, "-xds")
    return _document(gateway, "Secret", name, hashed=False, type="Opaque", data=encoded)


def _labels(gateway: Wanted) -> dict[str, str]:
    # Ours last: they say which Pods belong to the Gateway, and nobody may say otherwise.
    return {**dict(gateway.labels), **selector(gateway.key.name), names.MANAGED_BY: names.MANAGER}


def _document(gateway: Wanted, kind: str, name: str, *, hashed: bool = True, **content: Any) -> Json:
    group, version, _ = RESOURCES[kind]
    key = gateway.key
    metadata: Json = {
        "name": name,
        "namespace": key.namespace,
        "labels": _labels(gateway),
        "annotations": dict(gateway.annotations),
        "ownerReferences": [
            {"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "name": key.name, "uid": gateway.uid, "controller": True}
        ],
    }
    document = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, "metadata": metadata, **content}
    if hashed:
        metadata["annotations"][names.HASH] = _hash(document)
    return document


def _hash(document: Json) -> str:
    return hashlib.blake2b(msgspec.json.encode(document, order="deterministic"), digest_size=8).hexdigest()
