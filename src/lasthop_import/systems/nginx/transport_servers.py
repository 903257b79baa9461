"""Translates TransportServers to routes for TLS passthrough, TCP and UDP."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
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
    inputs: Inputs, custom_listeners: CustomListeners, hosts: Hosts
) -> tuple[list[ImportedListener], list[ImportedRule]]:
    listeners: list[ImportedListener] = []
    rules: list[ImportedRule] = []
    for document in inputs.of(TRANSPORT_SERVER):
        if hosts.serves(document):
            for listener, rule in _server(inputs.open(document).child("spec"), document, custom_listeners):
                listeners.append(listener)
                rules.append(rule)
    return listeners, rules


def _server(
    spec: FieldReader, document: Document, custom_listeners: CustomListeners
) -> list[tuple[ImportedListener, ImportedRule]]:
    spec.ignore("ingressClassName")
    for key in ("serverSnippets", "streamSnippets"):
        spec.access_control(key, SNIPPETS)
    for key in ("upstreamParameters", "sessionParameters"):
        spec.cannot(key, "timeouts and tries of streams have no equivalent")
    host = spec.text("host").lower()
    backends = {upstream.text("name"): _backend(upstream) for upstream in spec.children("upstreams")}
    action = spec.child("action")
    backend = backends.get(action.text("pass"))
    if backend is None:
        text = "names no upstream, so the controller refused the TransportServer"
        action.note(Category.CANNOT, "no-upstream", text, "pass", severity=NoteSeverity.HIGH)
    listener = _listener(spec, host, custom_listeners)
    if listener is None:
        return []
    tls = HopTLS(OldLevel.PASSTHROUGH, "listener tls-passthrough") if listener.passthrough else None
    if backend and listener.protocol == "UDP":
        backend = msgspec.structs.replace(backend, protocol="UDP")
    hops = (ImportedHop(action.source("pass"), backend, tls),) if backend else ()
    kind = {"UDP": RouteKind.UDP, "TLS": RouteKind.TLS if host else RouteKind.TCP}.get(listener.protocol, RouteKind.TCP)
    names = (host,) if kind is RouteKind.TLS and host else ()
    rule = ImportedRule(spec.source(), document.namespace, document.bare_name, (listener.key,), names, kind, hops=hops)
    return [(listener, rule)]


def _listener(spec: FieldReader, host: str, custom_listeners: CustomListeners) -> ImportedListener | None:
    """Returns the listener that a TransportServer names; None if it is unknown."""
    at, secret = spec.child("listener"), spec.child("tls").text("secret")
    name, protocol = at.text("name"), at.text("protocol")
    if name == PASSTHROUGH:
        if host:
            return ImportedListener(at.source(), 443, "TLS", host, passthrough=True)
        text = "TLS is passed through by host, and there is none"
        spec.note(Category.CANNOT, "no-host", text, "listener", severity=NoteSeverity.HIGH)
        return None
    named_listener = custom_listeners.find(name)
    if named_listener is None or not is_port(named_listener.port):
        text = f"no GlobalConfiguration in the input has a listener {name}, so its port is not known; nothing is written"
        at.note(Category.TODO, "listener-unknown", text, "name", remedy="Add the GlobalConfiguration to the input.")
        return None
    if secret:
        return ImportedListener(at.source(), named_listener.port, "TLS", host, (SecretCertificate(spec.namespace, secret),))
    udp = (protocol or named_listener.protocol).upper() == "UDP"
    return ImportedListener(at.source(), named_listener.port, "UDP" if udp else "TCP")


def _backend(reader: FieldReader) -> ServiceBackend:
    for key, text in CANNOT.items():
        reader.cannot(key, text)
    namespace, _, service = reader.text("service").rpartition("/")
    return ServiceBackend(namespace or reader.namespace, service, reader.port("port"))
