"""Imports OpenShift's Routes, and the Ingresses that OpenShift converts to Routes.

Read at openshift/router 4b401a86d.

    routes.py         Routes and Ingresses as one type
    backend_tls.py    how HAProxy verifies a backend
    annotations.py    annotations as filters, and settings without an equivalent
    routing.py        listeners and rules
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import class_of
from lasthop_import.inputs import INGRESS
from lasthop_import.settings import Flag, System
from lasthop_import.systems.openshift.routes import CONTROLLER, INGRESS_CLASS, INGRESS_PREFIX, ROUTE
from lasthop_import.systems.openshift.routing import NO_DEFAULT_CA, read


def _claims(document: Document) -> bool:
    if document.kind == ROUTE.kind:
        return True
    return class_of(document) == INGRESS_CLASS or any(str(name).startswith(INGRESS_PREFIX) for name in document.annotations)


SYSTEM: Final = System(
    name="openshift",
    title="OpenShift Routes (openshift/router)",
    kinds=(ROUTE, INGRESS),
    read=read,
    claims=_claims,
    flags=(
        Flag(
            f"--{NO_DEFAULT_CA}",
            "The router runs without DEFAULT_DESTINATION_CA_PATH: the OpenShift operator did not set it up.",
        ),
    ),
    controllers=(CONTROLLER,),
    annotations=("haproxy.router.openshift.io/", "router.openshift.io/", INGRESS_PREFIX),
)
