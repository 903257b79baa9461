"""Builds all objects of a Gateway as documents to apply. Pure: equal input gives equal documents."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.gateway import GROUP
from lasthop.run.infra.kubernetes import names
from lasthop.run.infra.kubernetes.desired import DesiredGateway, Site
from lasthop.run.infra.kubernetes.names import object_name, selector
from lasthop.run.infra.kubernetes.pods import autoscaler_specs, budget_spec, deployment_spec
from lasthop.run.infra.kubernetes.services import service_specs

RESOURCES: Final = {
    # kind: (group, version, plural), in the order in which they are applied
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Secret": ("", "v1", "secrets"),
    "Service": ("", "v1", "services"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Deployment": ("apps", "v1", "deployments"),
    "HorizontalPodAutoscaler": ("autoscaling", "v2", "horizontalpodautoscalers"),
}


def manifests(gateway: DesiredGateway, site: Site) -> list[Json]:
    """Returns all objects but the Secret, whose content depends on time and not on the desired state."""
    name = object_name(gateway.key.name)
    pod, exposed = gateway.settings.pod, dict(gateway.settings.service.annotations)
    services = [
        _document(gateway, "Service", service, annotations=exposed, spec=spec)
        for service, spec in service_specs(gateway).items()
    ]
    labels, annotations = {**dict(pod.labels), **_labels(gateway)}, {**dict(pod.annotations), **dict(gateway.annotations)}
    return [
        _document(gateway, "ServiceAccount", name, automountServiceAccountToken=False),
        *services,
        _document(gateway, "PodDisruptionBudget", name, spec=budget_spec(gateway)),
        _document(gateway, "Deployment", name, spec=deployment_spec(gateway, site, labels, annotations)),
        *(_document(gateway, "HorizontalPodAutoscaler", name, spec=spec) for spec in autoscaler_specs(gateway)),
    ]


def secret(gateway: DesiredGateway, data: Mapping[str, bytes]) -> Json:
    name = object_name(gateway.key.name, "-xds")
    return _document(gateway, "Secret", name, hashed=False, type="Opaque", data=encoded(data))


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(content).decode() for key, content in data.items()}


def _labels(gateway: DesiredGateway) -> dict[str, str]:
    # Our labels come last: they select the Gateway's Pods, and must not be overridden.
    return {**dict(gateway.labels), **selector(gateway.key.name), names.MANAGED_BY: names.MANAGER}


def _document(
    gateway: DesiredGateway,
    kind: str,
    name: str,
    *,
    hashed: bool = True,
    annotations: Mapping[str, str] | None = None,
    **content: Any,
) -> Json:
    """Builds one document. `annotations` are the profile's; the Gateway's own come last."""
    group, version, _ = RESOURCES[kind]
    key = gateway.key
    metadata: Json = {
        "name": name,
        "namespace": key.namespace,
        "labels": _labels(gateway),
        "annotations": {**(annotations or {}), **dict(gateway.annotations)},
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
