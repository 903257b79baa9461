"""Turns Hosts and Listeners into listeners: for each host one with TLS, and one that redirects, routes or rejects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lasthop.base.api.routes import HTTPRequestRedirectFilter, HTTPRouteFilter
from lasthop.engine.resolve.routing.hostnames import intersection
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ForeignCertificate,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    PathKind,
    PathMatch,
    SecretCertificate,
)
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.values import is_host, is_port

ROOT: Final = ImportedMatch(PathMatch(PathKind.SEGMENT, "/"))
ACTIONS: Final = ("Redirect", "Reject", "Route")


class EmissaryHost(msgspec.Struct, frozen=True):
    source: SourceRef
    namespace: str
    name: str
    hostname: str
    """Empty: any."""
    certificate: Certificate | None
    action: str
    """What happens to requests without TLS."""
    selector: Mapping[str, str]
    """Labels of the Mappings that it takes; empty: all."""


class EmissaryListener(msgspec.Struct, frozen=True):
    """A Listener."""

    source: SourceRef
    number: int
    """Of the Service in front of it, if that is known."""
    inner: int
    protocol: str
    """HTTP, HTTPS, TCP or TLS."""
    always_secure: bool


class HostListeners:
    def __init__(self, inputs: Inputs, objects: EmissaryObjects) -> None:
        self._inputs = inputs
        self._hosts = [host for each in objects.of("Host") if (host := _host(each))]
        self._ports = [port for each in objects.of("Listener") if (port := _port(inputs, each))]
        self.listeners: list[ImportedListener] = []
        self.redirects: list[ImportedRule] = []
        self._redirected: set[tuple[str, int]] = set()

    def note_unused(self) -> None:
        """Writes the listeners of hosts without Mappings too, so that their names are served as before."""
        for host in self._hosts:
            self._listeners(host, host.source)

    def http(self, source: SourceRef, hostname: str, labels: Mapping[str, Any]) -> list[ImportedListener]:
        """Returns the listeners that take the requests of a Mapping."""
        return [
            listener
            for host in self._of(source)
            if intersection(host.hostname, hostname) is not None
            if all(labels.get(key) == value for key, value in host.selector.items())
            for listener in self._listeners(host, source)
        ]

    def stream(self, source: SourceRef, port: int, hostname: str) -> ImportedListener:
        """Returns the listener of a TCPMapping: with a host, TLS ends there."""
        number = next((each.number for each in self._ports if each.inner == port), port)
        if not hostname:
            listener = ImportedListener(source, number, "TCP")
        else:
            host = next((each for each in self._hosts if each.hostname == hostname and each.certificate), None)
            certificate = host.certificate if host else None
            missing = ForeignCertificate("no Host has a certificate for it")
            listener = ImportedListener(source, number, "TLS", hostname, (certificate or missing,))
        self.listeners.append(listener)
        return listener

    def _of(self, source: SourceRef) -> Iterable[EmissaryHost]:
        """Returns the Hosts; without any, Emissary takes all hosts, in plaintext too."""
        return self._hosts or [EmissaryHost(source, source.document.namespace, "all", "", None, "Route", {})]

    def _ports_of(self, source: SourceRef) -> Iterable[EmissaryListener]:
        return self._ports or [
            EmissaryListener(source, 80, 8080, "HTTP", False),
            EmissaryListener(source, 443, 8443, "HTTPS", False),
        ]

    def _listeners(self, host: EmissaryHost, source: SourceRef) -> list[ImportedListener]:
        """Returns the listeners of a host that its Mappings attach to."""
        found = []
        for port in self._ports_of(source):
            if port.protocol == "HTTPS" and host.certificate is not None:
                listener = ImportedListener(host.source, port.number, "HTTPS", host.hostname, (host.certificate,))
            elif port.protocol == "HTTP":
                listener = ImportedListener(host.source, port.number, "HTTP", host.hostname)
                if not port.always_secure and host.action != "Route":
                    self._insecure(host, listener)
                    continue
            else:
                continue
            self.listeners.append(listener)
            found.append(listener)
        return found

    def _insecure(self, host: EmissaryHost, listener: ImportedListener) -> None:
        """Adds the redirect to HTTPS; of a rejected host nothing is served."""
        key = (host.hostname, listener.port)
        if host.action != "Redirect" or key in self._redirected:
            return
        self._redirected.add(key)
        self.listeners.append(listener)
        redirect = HTTPRequestRedirectFilter("https", status_code=301)
        rule = ImportedRule(
            source=host.source,
            namespace=host.namespace,
            route=f"{host.name}-https-redirect",
            listeners=(listener.key,),
            matches=(ROOT,),
            filters=(HTTPRouteFilter("RequestRedirect", request_redirect=redirect),),
        )
        self.redirects.append(rule)


def _host(reader: FieldReader) -> EmissaryHost | None:
    spec = reader.child("spec")
    hostname = spec.text("hostname", "*").lower()
    certificate = _certificate(spec)
    if "tls" in spec:
        tls = spec.child("tls")
        for key in _CLIENTS:
            tls.access_control(key, "clients had to have a certificate; they need none now")
        for key in sorted({*tls.value} - {*_CLIENTS}):
            tls.cannot(key, "settings of TLS for clients cannot be set by host")
    action = _insecure_action(spec.child("requestPolicy").child("insecure"))
    spec.cannot("previewUrl", "there is no such feature")
    if hostname != "*" and not is_host(hostname):
        text = f"{hostname[:100]} cannot be the hostname of a listener; it is left out"
        spec.note(Category.CANNOT, "host", text, "hostname")
        return None
    name = "" if hostname == "*" else hostname
    owner = reader.document.bare_name
    return EmissaryHost(spec.source(), reader.namespace, owner, name, certificate, action, _selector(spec))


def _certificate(spec: FieldReader) -> Certificate | None:
    """Returns the certificate of a Host: of its Secret, of a TLSContext or by ACME; None without TLS."""
    secret, context, acme = spec.child("tlsSecret"), spec.child("tlsContext").text("name"), spec.child("acmeProvider")
    name, namespace = secret.text("name"), secret.text("namespace") or spec.namespace
    found: Certificate | None = SecretCertificate(namespace, name) if name else None
    if context:
        text = f"settings of TLSContext {context[:100]} for clients are not carried over"
        spec.note(Category.CANNOT, "tls-context", text, "tlsContext")
        found = found or ForeignCertificate(f"it is in TLSContext {context[:100]}")
    if "acmeProvider" in spec:
        served = acme.value.get("authority") != "none"
        text, severity = "certificates are not requested from an ACME server", None if served else NoteSeverity.INFO
        spec.note(Category.CANNOT, "acme", text, "acmeProvider", remedy="Use cert-manager.", severity=severity)
        if served:
            found = found or ForeignCertificate("Emissary gets it by ACME")
    return found


def _insecure_action(insecure: FieldReader) -> str:
    action = insecure.text("action", "Redirect")
    insecure.cannot("additionalPort", "ports are those of the Listeners")
    if action in ACTIONS:
        return action
    insecure.note(Category.CHANGED, "action", "is none of Redirect, Reject and Route; Reject is used", "action")
    return "Reject"


_CLIENTS: Final = ("ca_secret", "cacert_chain_file", "crl_secret", "cert_required")


def _selector(spec: FieldReader) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for key in ("selector", "mappingSelector"):
        below = spec.child(key)
        found = below.text_map("matchLabels") or found
        below.cannot("matchExpressions", "is not evaluated: the Host takes all Mappings with these labels and its hostname")
    return found


def _port(inputs: Inputs, reader: FieldReader) -> EmissaryListener | None:
    spec = reader.child("spec")
    number, model = spec.integer("port") or 0, spec.text("securityModel")
    stack = spec.texts("protocolStack")
    protocol = spec.text("protocol").upper() or ("HTTPS" if "TLS" in stack and "HTTP" in stack else "".join(stack[:1]))
    spec.ignore("statsPrefix")
    binding = spec.child("hostBinding")
    binding.cannot("selector", "which Hosts use a Listener cannot be chosen: all do")
    origin = binding.child("namespace")
    if origin.text("from", "ALL").upper() != "ALL":
        origin.note(Category.CHANGED, "host-binding", "Hosts of all namespaces use the Listener", "from")
    origin.ignore("selector")
    if protocol in ("HTTPPROXY", "HTTPSPROXY"):
        spec.note(
            Category.CANNOT,
            "proxy-protocol",
            "the PROXY protocol is not expected from clients",
            "protocol",
            severity=NoteSeverity.HIGH,
        )
        protocol = protocol.removesuffix("PROXY")
    if protocol not in ("HTTP", "HTTPS", "TCP", "TLS") or not is_port(number):
        spec.note(
            Category.CANNOT, "listener", "has no valid port and protocol, and is left out", "port", severity=NoteSeverity.HIGH
        )
        return None
    outer = _service_port(inputs, reader.namespace, number)
    if outer != number:
        text = f"is port {outer} of the Service in front of it, which is the listener's"
        spec.note(Category.CHANGED, "listener-port", text, "port", severity=NoteSeverity.INFO)
    return EmissaryListener(spec.source(), outer, number, protocol, model == "SECURE")


def _service_port(inputs: Inputs, namespace: str, number: int) -> int:
    """Returns the port of a Service in the Listener's namespace that leads to it."""
    for document in inputs.documents:
        named = "emissary" in document.bare_name or "ambassador" in document.bare_name
        if document.kind == "Service" and document.namespace == namespace and named:
            for port in inputs.ports(namespace, document.bare_name) or ():
                if port.target == number:
                    return port.number
    return number
