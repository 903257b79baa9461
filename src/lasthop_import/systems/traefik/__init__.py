"""Imports from Traefik: IngressRoutes, IngressRouteTCPs, and Ingresses with `traefik.ingress.kubernetes.io/*`.

Follows the source of traefik/traefik at fd5a576d (v3.7), which includes the rule syntax of v2.

    kinds.py            kinds of both API groups
    static.py           the static configuration: entry points, the default transport
    backend_tls.py      ServersTransports, and verification of backends by Go
    services.py         services and TraefikServices as hops
    matches.py          rules such as Host(`a.example`) && PathPrefix(`/x`)
    middlewares.py      middlewares; the headers middleware is in headers.py
    front.py            listeners, certificates, TLSOptions
    rules.py            routers as rules
    ingress_routes.py   IngressRoutes and IngressRouteTCPs
    ingress_objects.py  Ingresses
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import class_of
from lasthop_import.inputs import Inputs
from lasthop_import.model import Imported
from lasthop_import.settings import ImportSettings, System
from lasthop_import.systems.traefik.front import EntryPointListeners
from lasthop_import.systems.traefik.ingress_objects import CONTROLLER, read_ingresses
from lasthop_import.systems.traefik.ingress_routes import TraefikContext, read_connections, read_ingress_routes
from lasthop_import.systems.traefik.kinds import GROUPS, KINDS, PREFIX, TraefikObjects
from lasthop_import.systems.traefik.middlewares import Middlewares
from lasthop_import.systems.traefik.rules import TraefikRules
from lasthop_import.systems.traefik.services import TraefikServices
from lasthop_import.systems.traefik.static import FLAGS, read_static


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    static, objects = read_static(inputs, settings), TraefikObjects(inputs)
    front = EntryPointListeners(inputs, objects, static)
    context = TraefikContext(
        inputs,
        settings,
        objects,
        static,
        TraefikServices(inputs, objects, static),
        Middlewares(inputs, objects, static.cross_namespace),
        front,
        TraefikRules(inputs, front),
    )
    read_ingress_routes(context)
    read_ingresses(context)
    rules = (*context.rules.rules(), *read_connections(context))
    objects.skip_unused()
    return Imported(tuple(front.listeners), rules)


def _claims(document: Document) -> bool:
    annotated = any(str(name).startswith(f"{PREFIX}/") for name in document.annotations)
    return document.group in GROUPS or annotated or class_of(document).startswith("traefik")


SYSTEM: Final = System(
    name="traefik",
    gateway_controller="traefik.io/gateway-controller",
    title="Traefik",
    kinds=KINDS,
    read=read,
    claims=_claims,
    flags=FLAGS,
    controllers=(CONTROLLER,),
    annotations=(f"{PREFIX}/", "ingress.kubernetes.io/"),
    restricting=frozenset(("AccessControlPolicy", "Middleware", "MiddlewareTCP", "TLSOption")),
    other_groups=("hub.traefik.io",),
)
