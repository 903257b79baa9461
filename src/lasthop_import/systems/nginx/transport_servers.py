"""Turns TransportServers into routes for TLS that is passed through, TCP and UDP."""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.levels import Level
from lasthop_import.model import (
    HopTLS,
    ImportedHop,
    ImportedListener,
    ImportedRule,
    RouteKind,
    SecretCertificate,
    ServiceBackend,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.hosts import Hosts
from lasthop_import.systems.nginx.kinds import TRANSPORT_SERVER
from lasthop_import.systems.nginx.listeners import CustomListeners
from lasthop_import.systems.nginx.virtual_servers import SNIPPETS
from lasthop_import.values import is_port

PASSTHROUGH: Final = "tls-passthrough"
CANNOT: Final = {
    "failTimeout": "nginx left out a Pod that failed",
    "maxFails": "nginx left out a Pod that failed",
    "maxConns": "connections to one Pod were limited",
    "healthCheck": "Pods are not probed by the gateway; Kubernetes does that",
    "loadBalancingMethod": "the new gateway balances in its own way",
    "backup": "there is no second Service for when the first has no Pods",
    "backupPort": "belongs to backup",
}


def read_transport_servers(
    inputs: Inputs, named: CustomListeners, hosts: Hosts
) -> tuple[list[ImportedListener], list[ImportedRule]]:
    """Reads all TransportServers that are used."""
    listeners: list[ImportedListener] = []
    rules: list[ImportedRule] = []
    for document in inputs.of(TRANSPORT_SERVER):
        if hosts.serves(document):
            for listener, rule in _server(inputs.open(document).child("spec"), document, named):
                listeners.append(listener)
                rules.append(rule)
    return listeners, rules


def _server(spec: FieldReader, document: Document, named: CustomListeners) -> list[tuple[ImportedListener, ImportedRule]]:
    spec.ignore("ingressClassName")
    for key in ("serverSnippets", "streamSnippets"):
        spec.access_control(key, SNIPPETS)
    for key in ("upstreamParameters", "sessionParameters"):
        spec.cannot(key, "timeouts and tries of streams have no equivalent")
    at = spec.child("listener")
    name, protocol, host = at.text("name"), at.text("protocol"), spec.text("host").lower()
    backends = {each.text("name"): _backend(each) for each in spec.children("upstreams")}
    action = spec.child("action")
    backend = backends.get(action.text("pass"))
    if backend is None:
        text = "names no upstream, so the controller refused the TransportServer"
        action.note(Category.CANNOT, "no-upstream", text, "pass", severity=NoteSeverity.HIGH)
    secret = spec.child("tls").text("secret")
    if name == PASSTHROUGH:
        if not host:
            spec.note(Category.CANNOT, "no-host", "TLS is passed through by host, and there is none", "listener")
            return []
        listener = ImportedListener(at.source(), 443, "TLS", host, passthrough=True)
        kind, tls = RouteKind.TLS, HopTLS(Level.PASSTHROUGH, "listener tls-passthrough")
    else:
        port = named.by_name[name].port if name in named.by_name else 0
        if not is_port(port):
            text = f"no GlobalConfiguration in the input has a listener {name}, so its port is not known; nothing is written"
            at.note(Category.TODO, "listener-unknown", text, "name", remedy="Add the GlobalConfiguration to the input.")
            return []
        udp = (protocol or named.by_name[name].protocol).upper() == "UDP"
        kind, tls = RouteKind.UDP if udp else RouteKind.TCP, None
        listener = ImportedListener(at.source(), port, "UDP" if udp else "TCP")
        if secret:
            listener = ImportedListener(at.source(), port, "TLS", host, (SecretCertificate(document.namespace, secret),))
            kind = RouteKind.TLS if host else RouteKind.TCP
    hops = (ImportedHop(action.source("pass"), backend, tls),) if backend else ()
    names = (host,) if kind is RouteKind.TLS and host else ()
    rule = ImportedRule(spec.source(), document.namespace, document.bare_name, (listener.key,), names, kind, hops=hops)
    return [(listener, rule)]


def _backend(reader: FieldReader) -> ServiceBackend:
    for key, text in CANNOT.items():
        reader.cannot(key, text)
    namespace, _, service = reader.text("service").rpartition("/")
    return ServiceBackend(namespace or reader.namespace, service, reader.port("port"))
