"""Reads Listeners, and determines how each of them treats the requests of each Host [ir/irlistener, envoy/v3/v3listener].

A Listener with TLS accepts plaintext connections, too. The security model decides the treatment of a request. SECURE routes
all requests. INSECURE applies the Host's action for requests without TLS to all requests. XFP applies it to requests whose
X-Forwarded-Proto is not https: for a Host without a certificate, it routes only requests that a load balancer has decrypted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.engine.resolve.routing.hostnames import covers, intersection
from lasthop_import.inputs import Inputs
from lasthop_import.model import Certificate, ForeignCertificate, ImportedListener, ImportedRule
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.hosts import REDIRECT, REJECT, ROUTE, EmissaryHost, MappingHost, has_labels
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.values import https_redirect_rule, is_port

HTTPS_PORT: Final = 443
OFFLOADED: Final = "emissary-tls-offloaded"
"""The option for a load balancer that terminates TLS."""
MODELS: Final = ("XFP", "SECURE", "INSECURE")


class EmissaryListener(msgspec.Struct, frozen=True):
    source: SourceRef
    number: int
    """The port of the Service in front of the Listener, if it is known."""
    inner: int
    protocol: str
    """HTTP, HTTPS, TCP or TLS."""
    model: str
    namespace: str
    """The namespace of its Hosts; empty: all."""
    selector: Mapping[str, str]
    """Labels of its Hosts."""

    def takes(self, host: EmissaryHost) -> bool:
        return self.namespace in ("", host.namespace) and has_labels(host.labels, self.selector)

    def action(self, host: EmissaryHost, *, secure: bool) -> str:
        """Returns the action for requests; `secure`: they came over TLS."""
        if self.model == "SECURE" or (self.model == "XFP" and secure):
            return ROUTE
        return host.action

    @property
    def http(self) -> bool:
        return self.protocol in ("HTTP", "HTTPS")


class ServedHost(NamedTuple):
    """A listener to write for a Host, with its action for requests."""

    listener: ImportedListener
    action: str


class HostListeners:
    """The listeners of each Host, and the redirects to HTTPS."""

    def __init__(
        self, inputs: Inputs, objects: EmissaryObjects, hosts: Sequence[EmissaryHost], *, offloaded: bool, complete: bool
    ) -> None:
        """`offloaded`: a load balancer terminates TLS for Hosts without a certificate; `complete`: a Host or Listener that is
        not in the input does not exist."""
        self._notes = inputs.notes
        self._offloaded = offloaded
        self._ports = [port for reader in objects.of("Listener") if (port := _port(inputs, reader))]
        self.complete = complete
        self.hosts = hosts
        self._assumed = not hosts
        self._served: dict[tuple[str, str], list[ServedHost]] = {}
        self._streams: list[ImportedListener] = []
        self.redirects: list[ImportedRule] = []

    def assume(self, source: SourceRef) -> None:
        """Assumes a Host for all names if the input has none, as Emissary does, and the ports 80 and 443 without Listeners."""
        if not self.hosts:
            namespace = source.document.namespace
            self.hosts = [EmissaryHost(source, namespace, "all", "", None, "", ROUTE, None, {})]
            if not self.complete:
                text = "no Host is in the input: whether TLS ended here, and for which names, is unknown; plaintext is served"
                remedy = "Add the Hosts to the input, or pass --accept hosts-missing if there is none."
                self._notes.append(Note(Category.TODO, "hosts-missing", text, source, remedy=remedy))
        if not self._ports:
            self._ports = [
                EmissaryListener(source, port, inner, protocol, "XFP", "", {})
                for port, inner, protocol in ((80, 8080, "HTTP"), (HTTPS_PORT, 8443, "HTTPS"))
            ]
            text = "no Listener is in the input: ports 80 and 443 are assumed"
            remedy = "Add the Listeners to the input."
            severity = NoteSeverity.WARNING
            self._notes.append(Note(Category.TODO, "listeners-missing", text, source, remedy=remedy, severity=severity))

    @property
    def unknown(self) -> bool:
        """Whether Hosts that are not in the input may exist."""
        return self._assumed and not self.complete

    @property
    def listeners(self) -> list[ImportedListener]:
        """Includes Hosts without Mappings and Hosts that reject: a wider Host must not get requests for their names."""
        return [*(entry.listener for host in self.hosts for entry in self.served(host)), *self._streams]

    def reaches(self, listener: ImportedListener, name: str) -> bool:
        """Returns whether requests for a name reach a listener, and not a listener with a more specific hostname."""
        return not any(
            covers(listener.hostname, rival.hostname) and covers(rival.hostname, name)
            for rival in self.listeners
            if (rival.port, rival.protocol) == (listener.port, listener.protocol) and rival.hostname != listener.hostname
        )

    def redirect(self, routed: Sequence[tuple[EmissaryHost, str]]) -> None:
        """Adds the redirects to HTTPS. `routed`: Hosts and names with routes for requests without TLS."""
        for host in self.hosts:
            names = sorted({name for owner, name in routed if owner is host and name != host.hostname})
            for listener, action in self.served(host):
                for hostnames in _rule_names(host.hostname, names) if action == REDIRECT else ():
                    rule = https_redirect_rule(host.source, host.namespace, host.name, (listener.key,), hostnames)
                    self.redirects.append(rule)

    def takers(self, mapping_host: MappingHost, labels: Mapping[str, Any]) -> list[EmissaryHost]:
        return [host for host in self.hosts if host.takes(mapping_host, labels)]

    def stream(self, source: SourceRef, port: int, hostname: str) -> ImportedListener:
        """Returns the listener of a TCPMapping. With a host, the listener terminates TLS."""
        number = next((candidate.number for candidate in self._ports if candidate.inner == port), port)
        if not hostname:
            listener = ImportedListener(source, number, "TCP")
        else:
            ending = sorted((host for host in self.hosts if host.certificate), key=lambda host: host.hostname)
            fits = (host.certificate for host in ending if intersection(host.hostname, hostname) is not None)
            certificate = next(fits, None) or ForeignCertificate("no Host has a certificate for it")
            listener = ImportedListener(source, number, "TLS", hostname, (certificate,))
        self._streams.append(listener)
        return listener

    # --- listeners of each Host --------------------------------------------------------------------------------------

    def served(self, host: EmissaryHost) -> list[ServedHost]:
        key = (host.namespace, host.name)
        if key not in self._served:
            self._served[key] = self._of(host)
            self._explain(host, self._served[key])
        return self._served[key]

    def _of(self, host: EmissaryHost) -> list[ServedHost]:
        ports = [port for port in self._ports if port.http and port.takes(host)]
        with_tls = [port for port in ports if port.protocol == "HTTPS"]
        if host.certificate is not None and with_tls:
            owned = [port for port in with_tls if self._owner(port, host, secure=True) is host]
            served_hosts = [
                ServedHost(_listener(host, port, host.certificate), port.action(host, secure=True)) for port in owned
            ]
        else:
            served_hosts = list(self._decrypted_before(host, ports, with_tls))
        for port in ports:
            if port.model == "INSECURE" and host.action == REJECT:
                continue
            if port.protocol == "HTTP" and self._owner(port, host, secure=False) is host:
                routed = self._offloaded and port.model == "XFP" and not (host.certificate and with_tls)
                served_hosts.append(ServedHost(_listener(host, port), ROUTE if routed else port.action(host, secure=False)))
        return served_hosts

    def _decrypted_before(
        self, host: EmissaryHost, ports: Sequence[EmissaryListener], with_tls: Sequence[EmissaryListener]
    ) -> Iterable[ServedHost]:
        """Yields the listeners of a Host that does not terminate TLS, except plaintext Listeners: behind a load balancer that
        terminates TLS, and on Listeners with TLS, which accept plaintext, too."""
        ports = [port for port in ports if self._owner(port, host, secure=False) is host]
        waiting = [port for port in ports if port.model == "XFP" and host.action != ROUTE]
        wider = [candidate for candidate in self.hosts if candidate.certificate and covers(candidate.hostname, host.hostname)]
        if any(port.takes(candidate) for port in with_tls for candidate in wider):
            return  # a wider Host terminates TLS for its names, too
        if waiting and not self._offloaded:
            number = next((port.number for port in with_tls), HTTPS_PORT)
            if host.certificate is not None:
                text = f"no Listener with TLS takes the Host, so TLS ended in front of Emissary; it ends at port {number} now"
                self._notes.append(Note(Category.CHANGED, "tls-ends-here", text, host.source))
            reason = f"its Host names none, so TLS ended in front of Emissary; if it still will, pass --{OFFLOADED}"
            certificates = (host.certificate or ForeignCertificate(reason),)
            yield ServedHost(ImportedListener(host.source, number, "HTTPS", host.hostname, certificates), ROUTE)
        elif all(port.protocol == "HTTPS" for port in ports):
            for port in ports:
                if any(candidate.certificate and port.takes(candidate) for candidate in self.hosts):
                    reason = "its Host names none and was served in plaintext, on a port where other Hosts have TLS"
                    yield ServedHost(_listener(host, port, ForeignCertificate(reason)), ROUTE)
                else:
                    routed = self._offloaded and port.model == "XFP"
                    yield ServedHost(_listener(host, port), ROUTE if routed else port.action(host, secure=False))

    def _owner(self, port: EmissaryListener, host: EmissaryHost, *, secure: bool) -> EmissaryHost:
        """Returns the Host that a Listener uses, of several with one hostname: with TLS the last one with the settings of the
        first, in plaintext the last one."""
        namesakes = [candidate for candidate in self.hosts if candidate.hostname == host.hostname and port.takes(candidate)]
        if secure:
            ending = [candidate for candidate in namesakes if candidate.certificate is not None]
            namesakes = [candidate for candidate in ending if candidate.context == ending[0].context]
        return namesakes[-1]

    # --- notes -------------------------------------------------------------------------------------------------------

    def _explain(self, host: EmissaryHost, served: Sequence[ServedHost]) -> None:
        def say(category: Category, reason: str, text: str, severity: NoteSeverity | None = None) -> None:
            self._notes.append(Note(category, reason, text, host.source, severity=severity))

        if not served:
            namesakes = [
                candidate for candidate in self.hosts if candidate.hostname == host.hostname and candidate is not host
            ]
            if namesakes:
                text = f"Emissary uses {namesakes[-1].source.object} for this hostname, and never used this one"
                say(Category.SKIPPED, "host-taken", text, NoteSeverity.WARNING)
            else:
                say(Category.SKIPPED, "no-listener", "no Listener takes the Host, so that it was not served")
            return
        actions = {entry.action for entry in served if entry.listener.protocol == "HTTP"}
        if REDIRECT in actions:
            text = "all paths are redirected to HTTPS; those without a Mapping got 404"
            say(Category.CHANGED, "redirect-widened", text, NoteSeverity.INFO)
        secure = [entry for entry in served if entry.listener.protocol == "HTTPS"]
        if self._offloaded and not secure and host.action == REDIRECT:
            text = "requests without TLS are routed, not redirected: the balancer in front must redirect them"
            say(Category.CHANGED, "redirect-dropped", text)


def _rule_names(hostname: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the hostnames of a rule, in one route or two: a route for all names cannot list single names, too."""
    if hostname:
        return [(hostname, *names)]
    return [(), tuple(names)] if names else [()]


def _listener(host: EmissaryHost, port: EmissaryListener, certificate: Certificate | None = None) -> ImportedListener:
    if certificate is None:
        return ImportedListener(host.source, port.number, "HTTP", host.hostname)
    return ImportedListener(host.source, port.number, "HTTPS", host.hostname, (certificate,))


def _port(inputs: Inputs, reader: FieldReader) -> EmissaryListener | None:
    spec = reader.child("spec")
    number, model = spec.integer("port") or 0, spec.text("securityModel")
    protocol = _protocol(spec)
    spec.ignore("statsPrefix")
    namespace, selector, bound = _binding(spec)
    if protocol not in ("HTTP", "HTTPS", "TCP", "TLS") or not is_port(number):
        _left_out(spec, "has no valid port and protocol", "port")
        return None
    if protocol in ("HTTP", "HTTPS") and (model not in MODELS or not bound):
        _left_out(spec, "has no valid securityModel and hostBinding, without which Emissary does not use it", "securityModel")
        return None
    outer = _service_port(inputs, reader.namespace, number)
    if outer != number:
        text = f"is port {outer} of the Service in front of it, which is the listener's"
        spec.note(Category.CHANGED, "listener-port", text, "port", severity=NoteSeverity.INFO)
    return EmissaryListener(spec.source(), outer, number, protocol, model, namespace, selector)


def _left_out(spec: FieldReader, text: str, key: str) -> None:
    spec.note(Category.CANNOT, "listener", f"{text}; it is left out", key, severity=NoteSeverity.HIGH)


def _protocol(spec: FieldReader) -> str:
    """Returns HTTP, HTTPS, TCP or TLS; `protocolStack` has precedence over `protocol`."""
    stack, protocol = spec.texts("protocolStack"), spec.text("protocol").upper()
    if stack:
        kinds = ("HTTPS" if "TLS" in stack else "HTTP") if "HTTP" in stack else "TLS" if "TLS" in stack else stack[0]
        protocol = f"{kinds}PROXY" if "PROXY" in stack else kinds
    if "UDP" in stack:
        spec.note(Category.CANNOT, "http3", "HTTP/3 is not served by this Listener's own port", "protocolStack")
    if protocol in ("HTTPPROXY", "HTTPSPROXY"):
        text = "the PROXY protocol is not expected from clients"
        spec.note(Category.CANNOT, "proxy-protocol", text, "protocol", severity=NoteSeverity.HIGH)
    return protocol.removesuffix("PROXY")


def _binding(spec: FieldReader) -> tuple[str, Mapping[str, str], bool]:
    """Returns the namespace and labels of the Hosts that a Listener takes, and whether it names any."""
    binding = spec.child("hostBinding")
    origin, labels = binding.child("namespace"), binding.child("selector")
    place = origin.text("from").upper()
    origin.ignore("selector")
    selector = labels.text_map("matchLabels")
    labels.cannot("matchExpressions", "Emissary does not evaluate it")
    return ("" if place == "ALL" else spec.namespace), selector, bool(place or selector)


def _service_port(inputs: Inputs, namespace: str, number: int) -> int:
    """Returns the port of a Service in the Listener's namespace whose target is the Listener."""
    for document in inputs.documents:
        named = "emissary" in document.bare_name or "ambassador" in document.bare_name
        if document.kind == "Service" and document.namespace == namespace and named:
            for port in inputs.ports(namespace, document.bare_name) or ():
                if port.target == number:
                    return port.number
    return number
