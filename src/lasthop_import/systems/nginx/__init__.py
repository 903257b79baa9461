"""Imports from NGINX Inc.'s controller (nginx/kubernetes-ingress): its own kinds, and Ingresses with `nginx.org/*`.

Follows the source of nginx/kubernetes-ingress at 0eb3072d1. ingress-nginx is another controller, with the annotations
`nginx.ingress.kubernetes.io/*`.

    policies.py             Policies, combined for a server, a route or a minion
    backend_tls.py          verification of backends
    virtual_servers.py      VirtualServers and VirtualServerRoutes, with actions.py, upstreams.py and paths.py
    ingresses.py            Ingresses, masters and minions; annotations.py lists annotations without an equivalent
    transport_servers.py    TLS passthrough, TCP, UDP
    hosts.py, listeners.py  owners of hosts, and listeners by name
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document, mapping
from lasthop_import.ingresses import class_of, of_classes
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.model import Imported
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.settings import ImportSettings, System
from lasthop_import.systems.nginx.hosts import Hosts
from lasthop_import.systems.nginx.ingresses import OWN_PREFIXES, Ingresses
from lasthop_import.systems.nginx.kinds import GROUP, OWN_KINDS, POLICY
from lasthop_import.systems.nginx.listeners import CustomListeners
from lasthop_import.systems.nginx.policies import NginxPolicyReader
from lasthop_import.systems.nginx.transport_servers import read_transport_servers
from lasthop_import.systems.nginx.virtual_servers import SNIPPETS, VirtualServers

CONFIG_SNIPPETS: Final = frozenset(("http-snippets", "location-snippets", "server-snippets", "stream-snippets"))
CONTROLLER: Final = "nginx.org/ingress-controller"


def _claims(document: Document) -> bool:
    return document.group == GROUP or any(str(name).startswith(OWN_PREFIXES) for name in document.annotations)


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    policies, custom_listeners = NginxPolicyReader(inputs), CustomListeners(inputs)
    classed = [
        document for kind in OWN_KINDS for document in inputs.of(kind) if kind.kind != POLICY.kind and class_of(document)
    ]
    selected = of_classes(inputs, settings, (*inputs.of(INGRESS), *classed), CONTROLLER)
    documents = [document for document in selected if document.kind == INGRESS.kind]
    hosts = Hosts(inputs, selected, documents)
    servers = VirtualServers(inputs, policies, custom_listeners, hosts)
    servers.read()
    ingresses = Ingresses(inputs, policies, hosts)
    ingresses.read(documents)
    streams, stream_rules = read_transport_servers(inputs, custom_listeners, hosts)
    policies.note_unused()
    custom_listeners.note_unused()
    _list_snippets(inputs)
    listeners = (*servers.listeners, *ingresses.listeners, *streams)
    return Imported(listeners, (*servers.rules, *ingresses.rules, *stream_rules))


def _list_snippets(inputs: Inputs) -> None:
    """Lists the snippets of the controller's ConfigMap. Its name is not fixed, so all ConfigMaps are searched."""
    for document in inputs.documents:
        data = mapping(document.value.get("data")) if document.kind == "ConfigMap" else {}
        for key in CONFIG_SNIPPETS & data.keys():
            inputs.notes.append(Note(Category.ACCESS_CONTROL, key, SNIPPETS, SourceRef(document, ("data", key))))


SYSTEM: Final = System(
    name="nginx",
    title="NGINX Ingress Controller (nginx/kubernetes-ingress)",
    kinds=(*OWN_KINDS, INGRESS),
    read=read,
    claims=_claims,
    controllers=(CONTROLLER,),
    annotations=OWN_PREFIXES,
    restricting=frozenset((POLICY.kind,)),
)
