"""Imports Emissary-ingress (Ambassador): Mappings, Hosts, Listeners, TLSContexts, TCPMappings and AuthServices.

Read at emissary-ingress/emissary 3ebe0f46.

    kinds.py         kinds, instances, and objects that are only listed
    services.py      `service: https://name.namespace:port` as a backend
    backend_tls.py   TLSContexts, and how Envoy verifies a backend
    hosts.py         Hosts, and the Mappings that they take
    listeners.py     Listeners, and their action for each Host
    groups.py        matches of Mappings, and groups of Mappings
    mappings.py      groups of Mappings, and TCPMappings, as rules
    filters.py       changes of requests and responses
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import Imported
from lasthop_import.settings import Flag, ImportSettings, System
from lasthop_import.systems.emissary.backend_tls import read_contexts
from lasthop_import.systems.emissary.hosts import read_hosts
from lasthop_import.systems.emissary.kinds import GROUPS, KINDS, RESTRICTING, EmissaryObjects
from lasthop_import.systems.emissary.listeners import OFFLOADED, HostListeners
from lasthop_import.systems.emissary.mappings import MappingReader
from lasthop_import.systems.emissary.services import EmissaryServices


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    objects = EmissaryObjects(inputs, str(settings.flags.get("emissary-id") or "default"))
    contexts = read_contexts(inputs, objects)
    offloaded = bool(settings.flags.get(OFFLOADED))
    front = HostListeners(inputs, objects, read_hosts(objects, contexts), offloaded=offloaded, complete=settings.in_cluster)
    reader = MappingReader(inputs, objects, contexts, front, EmissaryServices(objects.module()))
    reader.read()
    objects.list_others()
    contexts.note_unused()
    return Imported(tuple(front.listeners), tuple((*front.redirects, *reader.rules)))


def _claims(document: Document) -> bool:
    return document.group in GROUPS


SYSTEM: Final = System(
    name="emissary",
    gateway_controller="getambassador.io/gateway-controller",
    title="Emissary-ingress (Ambassador)",
    kinds=KINDS,
    read=read,
    claims=_claims,
    restricting=RESTRICTING,
    annotations=("getambassador.io/",),
    flags=(
        Flag("--emissary-id", "The instance: AMBASSADOR_ID.", "ID", default="default"),
        Flag(f"--{OFFLOADED}", "A balancer in front ends TLS: route Hosts without a certificate on plaintext listeners."),
    ),
)
