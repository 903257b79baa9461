"""Imports from GKE: Ingresses of its load balancers, and Gateways of the classes `gke-*`.

The verification by the load balancers follows their documentation; it was not tried on a real load balancer.

    backend_tls.py      verification of backends by a load balancer: none without a BackendTLSPolicy
    ingresses.py        Ingresses, with FrontendConfigs
    backend_configs.py  BackendConfigs
    gateways.py         copies of Gateways and routes
    policies.py         Google's policies for Gateways
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import class_of
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.model import Imported
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings, System
from lasthop_import.systems.gke.gateways import is_gke, read_gateways
from lasthop_import.systems.gke.ingresses import CLASSES, CONTROLLER, PREFIXES, read_ingresses
from lasthop_import.systems.gke.kinds import (
    BACKEND_CONFIG,
    BACKEND_POLICY,
    CLOUD_GROUP,
    GATEWAY,
    GATEWAY_KINDS,
    GROUP,
    MULTI_CLUSTER,
    OWN_KINDS,
    RESTRICTING,
)


def _claims(document: Document) -> bool:
    if document.kind == INGRESS.kind:
        annotated = any(str(name).startswith(PREFIXES) for name in document.annotations)
        return class_of(document) in CLASSES or (not class_of(document) and annotated)
    if document.kind == GATEWAY.kind:
        return is_gke(document)
    return document.group in (GROUP, CLOUD_GROUP, "net.gke.io")


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    for kind in MULTI_CLUSTER:
        for document in inputs.of(kind):
            text = f"{kind.kind} joins several clusters, and cannot be imported; its backends are not in the report"
            inputs.open(document).ignore(*document.value)
            note = Note(Category.CANNOT, "multi-cluster", text, SourceRef(document), severity=NoteSeverity.HIGH)
            inputs.notes.append(note)
    return read_ingresses(inputs, settings).joined(read_gateways(inputs, settings))


SYSTEM: Final = System(
    name="gke",
    title="GKE Ingress and GKE Gateway",
    kinds=(*OWN_KINDS, *GATEWAY_KINDS, INGRESS),
    read=read,
    claims=_claims,
    controllers=(CONTROLLER,),
    annotations=("networking.gke.io/", "cloud.google.com/", "ingress.gcp.kubernetes.io/"),
    restricting=frozenset(kind.kind for kind in (BACKEND_CONFIG, BACKEND_POLICY, *RESTRICTING)),
)
