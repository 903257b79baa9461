"""Imports Contour: HTTPProxies with everything that they include, ExtensionServices, and Ingresses.

Read at projectcontour/contour 31c4bb38.

    kinds.py         kinds, classes, delegations, the controller's configuration
    backend_tls.py   protocols of Services, and how Envoy verifies them
    conditions.py    matches of requests
    filters.py       changes of requests and responses
    proxies.py       HTTPProxies as listeners and rules
    ingresses.py     Ingresses likewise
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.model import Imported
from lasthop_import.settings import Flag, ImportSettings, System
from lasthop_import.systems.contour.backend_tls import ContourBackends
from lasthop_import.systems.contour.ingresses import IngressReader
from lasthop_import.systems.contour.kinds import (
    CONFIGURATION,
    EXTENSION_SERVICE,
    GROUP,
    KINDS,
    PREFIXES,
    Delegations,
    class_of,
    read_config,
)
from lasthop_import.systems.contour.proxies import ProxyReader


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    delegations = Delegations(inputs)
    backends = ContourBackends(inputs, delegations, read_config(inputs, settings))
    proxies = ProxyReader(inputs, settings, delegations, backends)
    proxies.read()
    ingresses = IngressReader(inputs, settings, backends)
    ingresses.read()
    for document in inputs.of(EXTENSION_SERVICE):
        if not inputs.opened(document):
            inputs.skip(document, "unused", "no imported HTTPProxy uses it")
    return Imported(tuple((*proxies.listeners, *ingresses.listeners)), tuple((*proxies.rules, *ingresses.rules)))


def _claims(document: Document) -> bool:
    if document.kind != INGRESS.kind:
        return document.group == GROUP
    return class_of(document) == "contour" or any(str(name).startswith(PREFIXES[0]) for name in document.annotations)


SYSTEM: Final = System(
    name="contour",
    gateway_controller="projectcontour.io/gateway-controller",
    title="Contour",
    kinds=(*KINDS, INGRESS),
    read=read,
    claims=_claims,
    restricting=frozenset((CONFIGURATION.kind, EXTENSION_SERVICE.kind)),
    other_groups=("contour.heptio.com",),
    annotations=("projectcontour.io/", "contour.heptio.com/", "ingress.kubernetes.io/"),
    flags=(Flag("--contour-config", "The controller's contour.yaml.", "FILE", file=True),),
)
