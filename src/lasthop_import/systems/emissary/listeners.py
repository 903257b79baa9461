"""Reads Listeners, and determines how each of them treats the requests of each Host [ir/irlistener, envoy/v3/v3listener].

A Listener with TLS takes plaintext connections, too. The treatment of a request depends on the security model: SECURE routes
all, INSECURE does with all what the Host says of requests without TLS, and XFP does so with those whose X-Forwarded-Proto is
not https: of a Host without a certificate it routes only what a balancer in front has decrypted.
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
"""The option for a balancer that ends TLS."""
MODELS: Final = ("XFP", "SECURE", "INSECURE")


class EmissaryListener(msgspec.Struct, frozen=True):
    """A Listener."""

    source: SourceRef
    number: int
    """The port of the Service in front of it, if that is known."""
    inner: int
    protocol: str
    """HTTP, HTTPS, TCP or TLS."""
    model: str
    namespace: str
    """Of its Hosts; empty: all."""
    selector: Mapping[str, str]
    """Labels of its Hosts."""

    def takes(self, host: EmissaryHost) -> bool:
        return self.namespace in ("", host.namespace) and has_labels(host.labels, self.selector)

    def action(self, host: EmissaryHost, *, secure: bool) -> str:
        """Returns the action for requests; `secure` ones came over TLS."""
        if self.model == "SECURE" or (self.model == "XFP" and secure):
            return ROUTE
        return host.action

    @property
    def http(self) -> bool:
        return self.protocol in ("HTTP", "HTTPS")


class ServedHost(NamedTuple):
    """A listener to write for a Host, and what it does with requests."""

    listener: ImportedListener
    action: str


class HostListeners:
    """The listeners of each Host, and the redirects to HTTPS."""

    def __init__(
        self, inputs: Inputs, objects: EmissaryObjects, hosts: Sequence[EmissaryHost], *, offloaded: bool, complete: bool
    ) -> None:
        """`offloaded`: a balancer ends TLS for Hosts without a certificate; `complete`: a Host or Listener that is not in the
        input does not exist."""
        self._notes = inputs.notes
        self._offloaded = offloaded
        self._ports = [port for each in objects.of("Listener") if (port := _port(inputs, each))]
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
        """Whether the Hosts are not in the input, and may exist all the same."""
        return self._assumed and not self.complete

    @property
    def listeners(self) -> list[ImportedListener]:
        """Returns also those of Hosts without Mappings and of Hosts that reject: their names must not fall to a wider one."""
        return [*(each.listener for host in self.hosts for each in self.served(host)), *self._streams]

    def reaches(self, listener: ImportedListener, name: str) -> bool:
        """Returns whether requests for a name get to a listener, and not to that of a Host with a more specific hostname."""
        return not any(
            covers(listener.hostname, other.hostname) and covers(other.hostname, name)
            for other in self.listeners
            if (other.port, other.protocol) == (listener.port, listener.protocol) and other.hostname != listener.hostname
        )

    def redirect(self, routed: Sequence[tuple[EmissaryHost, str]]) -> None:
        """Makes the redirects to HTTPS. `routed`: names of Hosts for which something is routed without TLS."""
        for host in self.hosts:
            names = sorted({name for other, name in routed if other is host and name != host.hostname})
            for listener, action in self.served(host):
                for hostnames in _rule_names(host.hostname, names) if action == REDIRECT else ():
                    rule = https_redirect_rule(host.source, host.namespace, host.name, (listener.key,), hostnames)
                    self.redirects.append(rule)

    def takers(self, mapping_host: MappingHost, labels: Mapping[str, Any]) -> list[EmissaryHost]:
        return [host for host in self.hosts if host.takes(mapping_host, labels)]

    def stream(self, source: SourceRef, port: int, hostname: str) -> ImportedListener:
        """Returns the listener of a TCPMapping: with a host, TLS ends there."""
        number = next((each.number for each in self._ports if each.inner == port), port)
        if not hostname:
            listener = ImportedListener(source, number, "TCP")
        else:
            ending = sorted((each for each in self.hosts if each.certificate), key=lambda each: each.hostname)
            fits = (each.certificate for each in ending if intersection(each.hostname, hostname) is not None)
            certificate = next(fits, None) or ForeignCertificate("no Host has a certificate for it")
            listener = ImportedListener(source, number, "TLS", hostname, (certificate,))
        self._streams.append(listener)
        return listener

    # --- what each Host is served on ---------------------------------------------------------------------------------

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
            own = [port for port in with_tls if self._owner(port, host, secure=True) is host]
            found = [ServedHost(_listener(host, port, host.certificate), port.action(host, secure=True)) for port in own]
        else:
            found = list(self._decrypted_before(host, ports, with_tls))
        for port in ports:
            if port.model == "INSECURE" and host.action == REJECT:
                continue
            if port.protocol == "HTTP" and self._owner(port, host, secure=False) is host:
                routed = self._offloaded and port.model == "XFP" and not (host.certificate and with_tls)
                found.append(ServedHost(_listener(host, port), ROUTE if routed else port.action(host, secure=False)))
        return found

    def _decrypted_before(
        self, host: EmissaryHost, ports: Sequence[EmissaryListener], with_tls: Sequence[EmissaryListener]
    ) -> Iterable[ServedHost]:
        """Yields where a Host that does not end TLS was served besides plaintext Listeners: behind a balancer that ends TLS,
        and on Listeners with TLS, which take plaintext as well."""
        ports = [port for port in ports if self._owner(port, host, secure=False) is host]
        waiting = [port for port in ports if port.model == "XFP" and host.action != ROUTE]
        wider = [each for each in self.hosts if each.certificate and covers(each.hostname, host.hostname)]
        if any(port.takes(each) for port in with_tls for each in wider):
            return  # TLS ends there for its names, too
        if waiting and not self._offloaded:
            number = next((port.number for port in with_tls), HTTPS_PORT)
            if host.certificate is not None:
                text = f"no Listener with TLS takes the Host, so TLS ended in front of Emissary; it ends at port {number} now"
                self._notes.append(Note(Category.CHANGED, "tls-ends-here", text, host.source))
            what = f"its Host names none, so TLS ended in front of Emissary; if it still will, pass --{OFFLOADED}"
            certificates = (host.certificate or ForeignCertificate(what),)
            yield ServedHost(ImportedListener(host.source, number, "HTTPS", host.hostname, certificates), ROUTE)
        elif all(port.protocol == "HTTPS" for port in ports):
            for port in ports:
                if any(each.certificate and port.takes(each) for each in self.hosts):
                    what = "its Host names none and was served in plaintext, on a port where other Hosts have TLS"
                    yield ServedHost(_listener(host, port, ForeignCertificate(what)), ROUTE)
                else:
                    routed = self._offloaded and port.model == "XFP"
                    yield ServedHost(_listener(host, port), ROUTE if routed else port.action(host, secure=False))

    def _owner(self, port: EmissaryListener, host: EmissaryHost, *, secure: bool) -> EmissaryHost:
        """Returns which of the Hosts with one hostname a Listener uses: with TLS the last with the settings of the first,
        in plaintext the last."""
        same = [each for each in self.hosts if each.hostname == host.hostname and port.takes(each)]
        if secure:
            ending = [each for each in same if each.certificate is not None]
            same = [each for each in ending if each.context == ending[0].context]
        return same[-1]

    # --- in words ----------------------------------------------------------------------------------------------------

    def _explain(self, host: EmissaryHost, served: Sequence[ServedHost]) -> None:
        def say(category: Category, reason: str, text: str, severity: NoteSeverity | None = None) -> None:
            self._notes.append(Note(category, reason, text, host.source, severity=severity))

        if not served:
            others = [each for each in self.hosts if each.hostname == host.hostname and each is not host]
            if others:
                text = f"Emissary uses {others[-1].source.object} for this hostname, and never used this one"
                say(Category.SKIPPED, "host-taken", text, NoteSeverity.WARNING)
            else:
                say(Category.SKIPPED, "no-listener", "no Listener takes the Host, so that it was not served")
            return
        actions = {each.action for each in served if each.listener.protocol == "HTTP"}
        if REDIRECT in actions:
            text = "all paths are redirected to HTTPS; those without a Mapping got 404"
            say(Category.CHANGED, "redirect-widened", text, NoteSeverity.INFO)
        secure = [each for each in served if each.listener.protocol == "HTTPS"]
        if self._offloaded and not secure and host.action == REDIRECT:
            text = "requests without TLS are routed, not redirected: the balancer in front must redirect them"
            say(Category.CHANGED, "redirect-dropped", text)


def _rule_names(hostname: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the hostnames of a rule, in one route or two: a route for all names cannot name some besides."""
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
    """Returns HTTP, HTTPS, TCP or TLS; `protocolStack` counts before `protocol`."""
    stack, found = spec.texts("protocolStack"), spec.text("protocol").upper()
    if stack:
        kinds = ("HTTPS" if "TLS" in stack else "HTTP") if "HTTP" in stack else "TLS" if "TLS" in stack else stack[0]
        found = f"{kinds}PROXY" if "PROXY" in stack else kinds
    if "UDP" in stack:
        spec.note(Category.CANNOT, "http3", "HTTP/3 is not served by this Listener's own port", "protocolStack")
    if found in ("HTTPPROXY", "HTTPSPROXY"):
        text = "the PROXY protocol is not expected from clients"
        spec.note(Category.CANNOT, "proxy-protocol", text, "protocol", severity=NoteSeverity.HIGH)
    return found.removesuffix("PROXY")


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
    """Returns the port of a Service in the Listener's namespace that leads to it."""
    for document in inputs.documents:
        named = "emissary" in document.bare_name or "ambassador" in document.bare_name
        if document.kind == "Service" and document.namespace == namespace and named:
            for port in inputs.ports(namespace, document.bare_name) or ():
                if port.target == number:
                    return port.number
    return number
