"""Reads Routes, and converts Ingresses to Routes as OpenShift does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object
from lasthop_import.documents import Document, mapping, mappings, texts
from lasthop_import.ingresses import IngressObject, ingresses_of, read_ingress
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ForeignCertificate,
    HiddenKey,
    InlineCertificate,
    InlineTrust,
    MissingTrust,
    SecretCertificate,
    ServiceBackend,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.openshift.backend_tls import EDGE, PASSTHROUGH, REENCRYPT

ROUTE: Final = Kind("Route", "route.openshift.io", ("v1",), "routes", Object)
CONTROLLER: Final = "openshift.io/ingress-to-route"
INGRESS_CLASS: Final = "openshift-default"
INGRESS_PREFIX: Final = "route.openshift.io/"
TERMINATION: Final = f"{INGRESS_PREFIX}termination"
DESTINATION_CA: Final = f"{INGRESS_PREFIX}destination-ca-certificate-secret"
DEFAULT: Final = "the router's own wildcard certificate was used"


class RouteBackend(msgspec.Struct, frozen=True):
    service: ServiceBackend
    weight: int
    source: SourceRef


class OpenShiftRoute(msgspec.Struct, frozen=True):
    """A Route from the input, or from an Ingress."""

    document: Document
    reader: FieldReader
    annotations: FieldReader
    source: SourceRef
    host: str
    path: str
    exact: bool
    backends: tuple[RouteBackend, ...]
    termination: str
    insecure: str
    """None, Redirect or Allow."""
    certificate: Certificate
    ca: InlineTrust | MissingTrust | None
    refused: str = ""

    @property
    def tls(self) -> bool:
        return self.termination in (EDGE, REENCRYPT)


def read_routes(inputs: Inputs, settings: ImportSettings) -> Iterator[OpenShiftRoute]:
    """Yields all Routes that a router has admitted, or may have admitted, oldest first."""
    for document in inputs.of(ROUTE):
        if refusal := _not_admitted(document):
            inputs.skip(document, "not-admitted", f"no router admitted it: {refusal}")
        else:
            yield _RouteReader(inputs, settings).route(document)
    _note_routers(inputs)
    for document in _ingresses(inputs, settings):
        yield from _RouteReader(inputs, settings).ingress(document)


def _ingresses(inputs: Inputs, settings: ImportSettings) -> Iterator[Document]:
    for document in ingresses_of(inputs, settings, CONTROLLER, known=(INGRESS_CLASS, "")):
        if any(str(name).startswith(INGRESS_PREFIX) for name in document.annotations) or settings.ingress_classes:
            yield document
        else:
            text = f"it has no annotation {INGRESS_PREFIX}*; to import it all the same, name its class with --ingress-class"
            inputs.skip(document, "no-route", text)


def _note_routers(inputs: Inputs) -> None:
    """Lists routers that verify clients. Reads their objects only from files, because few users may list them in a cluster."""
    for document in inputs.documents:
        if (document.group, document.kind) == ("operator.openshift.io", "IngressController") and "clientTLS" in document.spec:
            text = "the router verified client certificates; the new gateway does not require them"
            source = SourceRef(document, ("spec", "clientTLS"))
            inputs.notes.append(Note(Category.ACCESS_CONTROL, "client-certificates", text, source, everywhere=True))


def _not_admitted(document: Document) -> str:
    """Returns the reason why no router serves a Route; empty if a router serves it, or the status is missing."""
    admissions = [
        condition
        for router in _routers(document)
        for condition in mappings(router.get("conditions"))
        if condition.get("type") == "Admitted"
    ]
    if any(condition.get("status") == "True" for condition in admissions):
        return ""
    return ", ".join(str(condition.get("reason") or "without a reason") for condition in admissions)


def _routers(document: Document) -> list[Json]:
    return mappings(mapping(document.value.get("status")).get("ingress"))


class _RouteReader:
    def __init__(self, inputs: Inputs, settings: ImportSettings) -> None:
        self._inputs = inputs
        self._settings = settings

    # --- Routes ------------------------------------------------------------------------------------------------------

    def route(self, document: Document) -> OpenShiftRoute:
        reader = self._inputs.open(document)
        spec = reader.child("spec")
        host, refused = self._host(spec, document)
        target = spec.child("port").port("targetPort")
        termination, insecure, certificate, ca = self._tls(spec, document)
        return OpenShiftRoute(
            document=document,
            reader=reader,
            annotations=reader.annotations(),
            source=spec.source(),
            host=host,
            path=spec.text("path"),
            exact=False,
            backends=tuple(self._backends(spec, document.namespace, target)),
            termination=termination,
            insecure=insecure,
            certificate=certificate,
            ca=ca,
            refused=refused,
        )

    def _host(self, spec: FieldReader, document: Document) -> tuple[str, str]:
        host, subdomain = spec.text("host").lower(), spec.text("subdomain").lower()
        reported = texts([router.get("host") for router in _routers(document)])
        host = host or next(filter(None, reported), "").lower()
        if not host and self._settings.domain:
            host = f"{subdomain or f'{document.bare_name}-{document.namespace}'}.{self._settings.domain.lower()}"
        if spec.text("wildcardPolicy", "None") == "Subdomain" and "." in host:
            host = f"*.{host.partition('.')[2]}"
        if host:
            return host, ""
        text = "the router generated the host from its domain, which the input lacks; the import skips the Route"
        spec.note(Category.TODO, "host-unknown", text, "host", remedy="Pass --domain, as apps.example.org.")
        return "", "its host is not known"

    def _backends(self, spec: FieldReader, namespace: str, target: int | str | None) -> Iterator[RouteBackend]:
        for reader in (spec.child("to"), *spec.children("alternateBackends")):
            kind, name, weight = reader.text("kind", "Service"), reader.text("name"), reader.integer("weight", 100)
            if kind != "Service" or not name:
                text = f"a backend of kind {kind} cannot be carried over" if name else "names no Service"
                reader.note(Category.CANNOT, "no-backend", text, None, severity=NoteSeverity.HIGH)
                continue
            port = self._port(reader, namespace, name, target)
            yield RouteBackend(
                ServiceBackend(namespace, name, port), max(0, 100 if weight is None else weight), reader.source()
            )

    def _port(self, reader: FieldReader, namespace: str, name: str, target: int | str | None) -> int | str | None:
        """Returns the port of the Service, because a Route names the port of the Pods."""
        ports = self._inputs.ports(namespace, name)
        if target is None or (ports is None and isinstance(target, str)):
            return target
        if ports is None:
            return f"for {target}"
        matching = [port for port in ports if target in (port.name, port.target)]
        names = self._named(namespace, name, target) if not matching and isinstance(target, int) else set()
        matching = matching or [port for port in ports if port.name in names]
        if len(matching) > 1:
            text = f"several ports of Service {namespace}/{name} lead to {target}; {matching[0].number} is used"
            reader.note(Category.CHANGED, "target-port", text, None)
        return matching[0].number if matching else f"for {target}"

    def _named(self, namespace: str, name: str, number: int) -> set[str]:
        """Returns the names of a Service's ports with this number in its endpoints."""
        slices = self._inputs.slices(namespace, name)
        ports = (port for endpoints in slices for port in mappings(endpoints.value.get("ports")))
        return {str(port.get("name") or "") for port in ports if port.get("port") == number}

    def _tls(self, spec: FieldReader, document: Document) -> tuple[str, str, Certificate, InlineTrust | MissingTrust | None]:
        tls = spec.child("tls")
        if "tls" not in spec:
            return "", "Allow", ForeignCertificate(DEFAULT), None
        certificate, destination = _certificate(tls, document), tls.text("destinationCACertificate")
        termination = tls.text("termination").lower() or ("(none)" if destination.strip() else EDGE)
        insecure = tls.text("insecureEdgeTerminationPolicy") or "None"
        if insecure not in ("None", "Allow", "Redirect"):
            text = "is not None, Allow or Redirect; plaintext is not accepted"
            tls.note(Category.CANNOT, "insecure-policy", text, "insecureEdgeTerminationPolicy")
            insecure = "None"
        ca: InlineTrust | None = None
        if destination.strip() and termination == REENCRYPT:
            ca = InlineTrust(destination, f"{document.name} spec.tls.destinationCACertificate")
        elif destination.strip():
            text = f"has no effect with termination {termination}"
            tls.note(Category.CHANGED, "destination-ca-ignored", text, "destinationCACertificate")
        return termination, insecure, certificate, ca

    # --- Ingresses ---------------------------------------------------------------------------------------------------

    def ingress(self, document: Document) -> Iterator[OpenShiftRoute]:
        """Yields a Route for each path, as the ingress-to-route controller does."""
        ingress = read_ingress(self._inputs, document)
        annotations = ingress.annotation_reader
        termination, named = annotations.text(TERMINATION).lower(), annotations.text(DESTINATION_CA)
        ca = self._destination_ca(document.namespace, named) if named else None
        for path in ingress.paths:
            if not path.host:
                self._inputs.notes.append(
                    Note(Category.SKIPPED, "no-host", "a path without a host makes no Route", path.source)
                )
                continue
            secret = next((name for hosts, name, _ in ingress.tls if path.host in hosts and name), "")
            effective = (termination or EDGE) if _secures(ingress, path.host) else termination
            yield OpenShiftRoute(
                document=document,
                reader=ingress.reader,
                annotations=annotations,
                source=path.source,
                host=path.host,
                path="" if effective == PASSTHROUGH else path.path,
                exact=path.path_type == "Exact",
                backends=(RouteBackend(path.backend, 100, path.source),) if path.backend else (),
                termination=effective,
                insecure="Redirect" if effective else "Allow",
                certificate=SecretCertificate(document.namespace, secret) if secret else ForeignCertificate(DEFAULT),
                ca=ca if effective == REENCRYPT else None,
            )

    def _destination_ca(self, namespace: str, name: str) -> InlineTrust | MissingTrust:
        pem = (self._inputs.data("Secret", namespace, name) or {}).get("tls.crt", b"").decode(errors="replace")
        secret = f"Secret {namespace}/{name}"
        return (
            InlineTrust(pem, f"{secret}, key tls.crt")
            if pem
            else MissingTrust(f"{secret} has no tls.crt, or is not in the input")
        )


def _secures(ingress: IngressObject, host: str) -> bool:
    """Returns whether an Ingress has TLS for a host. A TLS entry without hosts applies to all."""
    return any(host in hosts or not hosts for hosts, _, _ in ingress.tls)


def _certificate(tls: FieldReader, document: Document) -> Certificate:
    inner, key, chain = (tls.text(key).strip() for key in ("certificate", "key", "caCertificate"))
    if external := tls.child("externalCertificate").text("name"):
        return SecretCertificate(document.namespace, external)
    if not inner or not key:
        return ForeignCertificate(DEFAULT)
    whole = f"{inner}\n{chain}".strip() + "\n"
    return InlineCertificate(document.namespace, f"{document.bare_name}-tls", whole, HiddenKey(tls.text("key")))
