"""Lists the systems that can be imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import claims, controllers_of
from lasthop_import.settings import System
from lasthop_import.systems import contour, emissary, envoy_gateway, gke, ingress_nginx, istio, nginx, openshift, traefik

_MODULES: Final = (contour, emissary, envoy_gateway, gke, ingress_nginx, istio, nginx, openshift, traefik)
SYSTEMS: Final[dict[str, System]] = {module.SYSTEM.name: module.SYSTEM for module in _MODULES}
AUTO: Final = "auto"


def detected(documents: Sequence[Document]) -> list[System]:
    """Returns the systems to which some of the objects belong, for `auto`."""
    controllers = controllers_of(documents)
    return [
        system
        for system in SYSTEMS.values()
        if any(
            (document.group, document.kind) in {(kind.group, kind.kind) for kind in system.kinds}
            and claims(system, document, controllers)
            for document in documents
        )
    ]
