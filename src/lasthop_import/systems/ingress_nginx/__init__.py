"""Imports from ingress-nginx, the community's controller: Ingresses with `nginx.ingress.kubernetes.io/*`, and its ConfigMap.

Follows the source of kubernetes/ingress-nginx at dbb11b92, the last commit before its retirement.

    ingresses.py      the controller's Ingresses and their annotations
    config.py         the controller's ConfigMap
    backend_tls.py    verification of backends
    locations.py      hosts and paths, merged from all Ingresses as nginx merges them
    rewrites.py       paths, regular expressions, rewrite-target
    filters.py        headers, CORS, redirects, sessions, external authentication
    canaries.py       weights and conditions of a canary Ingress
    routing.py        listeners and rules
    unsupported.py    annotations without an equivalent
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import INGRESS
from lasthop_import.settings import Flag, System
from lasthop_import.systems.ingress_nginx.ingresses import CONTROLLER, NAMESAKE, PREFIX, is_named_nginx
from lasthop_import.systems.ingress_nginx.routing import read


def _claims(document: Document) -> bool:
    names = [str(name) for name in document.annotations]
    prefixed = any(name.startswith(f"{PREFIX}/") for name in names)
    return prefixed or (is_named_nginx(document) and not any(name.startswith(NAMESAKE) for name in names))


SYSTEM: Final = System(
    name="ingress-nginx",
    title="ingress-nginx (kubernetes/ingress-nginx)",
    kinds=(INGRESS,),
    read=read,
    claims=_claims,
    controllers=(CONTROLLER,),
    annotations=(f"{PREFIX}/", "ingress.kubernetes.io/"),
    flags=(
        Flag("--ingress-nginx-prefix", "The controller's --annotations-prefix.", "PREFIX", default=PREFIX),
        Flag("--ingress-nginx-configmap", "The controller's ConfigMap.", "NS/NAME"),
    ),
)
