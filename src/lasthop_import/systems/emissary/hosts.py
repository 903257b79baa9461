"""Reads Hosts, and decides which Mappings a Host takes [ir/irhost matches_httpgroup, ir/irutils].

A Mapping with a hostname needs a Host with an overlapping hostname. A Host with a mappingSelector takes only Mappings with its
labels. If both are set, both must match. Only Hosts that select a Mapping without a hostname take it.

Emissary 2.0 to 2.4, 3.0 and 3.1, and later versions with DISABLE_STRICT_LABEL_SELECTORS, took more: one label, or one of the
two conditions, was enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lasthop.engine.resolve.routing.hostnames import intersection
from lasthop_import.model import Certificate, ForeignCertificate, SecretCertificate
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.backend_tls import CLIENTS_LOST, Contexts
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.values import is_host

ROUTE, REDIRECT, REJECT = "Route", "Redirect", "Reject"
ACTIONS: Final = (REDIRECT, REJECT, ROUTE)


class MappingHost(msgspec.Struct, frozen=True):
    """The hosts that a Mapping names."""

    hostname: str | None
    """None: it names no host; empty: any."""
    pattern: str = ""
    """A regular expression, which matches every Host."""

    @property
    def named(self) -> bool:
        return self.hostname is not None or bool(self.pattern)

    def name_at(self, host: EmissaryHost) -> str:
        """Returns the hostname of the requests for both; empty: any."""
        return intersection(host.hostname, self.hostname or "") or ""


class EmissaryHost(msgspec.Struct, frozen=True):
    source: SourceRef
    namespace: str
    name: str
    hostname: str
    """Empty: any."""
    certificate: Certificate | None
    """None: the Host does not terminate TLS."""
    context: str
    """Identifies its TLS settings: Hosts of one hostname must share them."""
    action: str
    """The action for requests without TLS."""
    selector: Mapping[str, str] | None
    """Labels of the Mappings that it takes; None: labels are not compared."""
    labels: Mapping[str, Any]

    @property
    def is_exact(self) -> bool:
        return bool(self.hostname) and not self.hostname.startswith("*.")

    def selects(self, labels: Mapping[str, Any]) -> bool:
        return self.selector is not None and has_labels(labels, self.selector)

    def takes(self, mapping_host: MappingHost, labels: Mapping[str, Any]) -> bool:
        if self.selector is not None and not self.selects(labels):
            return False
        if not mapping_host.named:
            return self.selector is not None
        return bool(mapping_host.pattern) or intersection(self.hostname, mapping_host.hostname or "") is not None


def has_labels(labels: Mapping[str, Any], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def read_hosts(objects: EmissaryObjects, contexts: Contexts) -> list[EmissaryHost]:
    return [host for reader in objects.of("Host") if (host := _host(reader, contexts))]


def _host(reader: FieldReader, contexts: Contexts) -> EmissaryHost | None:
    spec = reader.child("spec")
    hostname = (spec.text("hostname") or "*").lower()
    certificate, context = _certificate(spec), spec.child("tlsContext").text("name")
    if context:
        _note_context(spec, context, contexts)
    if "tls" in spec:
        tls = spec.child("tls")
        for key in _CLIENTS:
            tls.access_control(key, CLIENTS_LOST)
        for key in sorted({*tls.value} - {*_CLIENTS}):
            tls.cannot(key, "settings of TLS for clients cannot be set by host")
    action = _insecure_action(spec.child("requestPolicy").child("insecure"))
    spec.cannot("previewUrl", "there is no such feature")
    selector = _selector(spec)
    if hostname != "*" and not is_host(hostname):
        text = f"{hostname[:100]} cannot be the hostname of a listener; the Host is left out, with its Mappings"
        spec.note(Category.CANNOT, "host", text, "hostname", severity=NoteSeverity.HIGH)
        return None
    owner = reader.document.bare_name
    return EmissaryHost(
        spec.source(),
        reader.namespace,
        owner,
        "" if hostname == "*" else hostname,
        certificate,
        context or reader.document.path,
        action,
        selector,
        reader.document.labels,
    )


def _note_context(spec: FieldReader, name: str, contexts: Contexts) -> None:
    context = contexts.find(name)
    if context is None:
        text = f"TLSContext {name[:100]} is not in the input; whether clients need a certificate is unknown"
        spec.note(Category.ACCESS_CONTROL, "tls-context-missing", text, "tlsContext", remedy="Add it to the input.")
    elif context.trust:
        spec.note(Category.ACCESS_CONTROL, "client-certificates", CLIENTS_LOST, "tlsContext")
    else:
        text = f"settings of TLSContext {name[:100]} for clients are not carried over"
        spec.note(Category.CANNOT, "tls-context", text, "tlsContext")


def _certificate(spec: FieldReader) -> Certificate | None:
    """Returns the certificate of a Host. A Host terminates TLS only with `tlsSecret`; a TLSContext adds settings to it."""
    secret, acme = spec.child("tlsSecret"), spec.child("acmeProvider")
    name, namespace = secret.text("name"), secret.text("namespace") or spec.namespace
    served = False
    if "acmeProvider" in spec:
        served = acme.value.get("authority") != "none"
        text, severity = "certificates are not requested from an ACME server", None if served else NoteSeverity.INFO
        spec.note(Category.CANNOT, "acme", text, "acmeProvider", remedy="Use cert-manager.", severity=severity)
    if name:
        return SecretCertificate(namespace, name)
    return ForeignCertificate("Emissary gets it by ACME") if served else None


def _insecure_action(insecure: FieldReader) -> str:
    action = insecure.text("action") or REDIRECT
    insecure.cannot("additionalPort", "ports are those of the Listeners")
    if action in ACTIONS:
        return action
    insecure.note(Category.CHANGED, "action", "is not Redirect, Reject or Route; Reject is used", "action")
    return REJECT


_CLIENTS: Final = ("ca_secret", "cacert_chain_file", "crl_secret", "cert_required")


def _selector(spec: FieldReader) -> Mapping[str, str] | None:
    """Returns the labels of `mappingSelector`, or else of `selector`. Emissary ignores matchExpressions, so a selector with
    nothing else selects all Mappings."""
    selector: Mapping[str, str] | None = None
    for key in ("mappingSelector", "selector"):
        written = spec.value.get(key)
        below = spec.child(key)
        labels = below.text_map("matchLabels")
        if "matchExpressions" in below:
            text = "Emissary does not evaluate it: only matchLabels were compared"
            below.note(Category.CHANGED, "match-expressions", text, "matchExpressions", severity=NoteSeverity.INFO)
        if written and selector is None:
            selector = labels
    return selector
