"""Imports NGINX Inc.'s controller (nginx/kubernetes-ingress): VirtualServers and their kin, and Ingresses with `nginx.org/*`.

Read at nginx/kubernetes-ingress 0eb3072d1. It is not ingress-nginx, whose annotations are `nginx.ingress.kubernetes.io/*`.

    policies.py             what the Policies of a server, a route or a minion come to
    backend_tls.py          what nginx verifies of a backend
    virtual_servers.py      VirtualServers and VirtualServerRoutes; actions.py, upstreams.py and paths.py are parts of them
    ingresses.py            Ingresses, masters and minions; annotations.py lists what has no equivalent
    transport_servers.py    TLS that is passed through, TCP, UDP
    hosts.py, listeners.py  which object has a host, and listeners by name
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
from lasthop_import.systems.nginx.policies import PolicyBook
from lasthop_import.systems.nginx.transport_servers import read_transport_servers
from lasthop_import.systems.nginx.virtual_servers import SNIPPETS, VirtualServers

CONFIG_SNIPPETS: Final = frozenset(("http-snippets", "location-snippets", "server-snippets", "stream-snippets"))
CONTROLLER: Final = "nginx.org/ingress-controller"


def _claims(document: Document) -> bool:
    return document.group == GROUP or any(str(name).startswith(OWN_PREFIXES) for name in document.annotations)


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    policies, named = PolicyBook(inputs), CustomListeners(inputs)
    classed = [each for kind in OWN_KINDS for each in inputs.of(kind) if kind.kind != POLICY.kind and class_of(each)]
    own = of_classes(inputs, settings, (*inputs.of(INGRESS), *classed), CONTROLLER)
    documents = [each for each in own if each.kind == INGRESS.kind]
    hosts = Hosts(inputs, own, documents)
    servers = VirtualServers(inputs, policies, named, hosts)
    servers.read()
    ingresses = Ingresses(inputs, policies, hosts)
    ingresses.read(documents)
    streams, stream_rules = read_transport_servers(inputs, named, hosts)
    policies.note_unused()
    named.note_unused()
    _list_snippets(inputs)
    listeners = (*servers.listeners, *ingresses.listeners, *streams)
    return Imported(listeners, (*servers.rules, *ingresses.rules, *stream_rules))


def _list_snippets(inputs: Inputs) -> None:
    """Lists the snippets of the controller's ConfigMap, whose name is free."""
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
