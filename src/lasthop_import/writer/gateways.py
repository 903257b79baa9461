"""Writes listeners as Gateways and ListenerSets, with their certificates and the grants that these need.

A Gateway verifies all clients of a port in one way, so listeners with another verification get a Gateway of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.names import is_dns_label, is_dns_subdomain
from lasthop_import.model import (
    ClientValidation,
    ForeignCertificate,
    ImportedListener,
    ImportedRule,
    InlineCertificate,
    ListenerKey,
    ObjectName,
    SecretCertificate,
)
from lasthop_import.names import shortened, slug
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.client_validation import ValidationWriter
from lasthop_import.writer.objects import ObjectWriter, OutputFile
from lasthop_import.writer.routes import RouteAttachment
from lasthop_import.writer.stage import Grant, StageOutput, WriterContext
from lasthop_import.writer.trust import CopiedCAs, TrustWriter

API: Final = "gateway.networking.k8s.io/v1"
MAX_LISTENERS: Final = 64
MAX_NAMESPACES: Final = 16
"""Namespaces that a listener names one by one; with more, all may attach routes."""
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


class Placement(NamedTuple):
    """The listeners of each Gateway, equal ones merged."""

    listeners: Mapping[ObjectName, Sequence[ImportedListener]]
    gateways: Mapping[ListenerKey, ObjectName]
    notes: tuple[Note, ...]


def place_listeners(listeners: Iterable[ImportedListener], settings: ImportSettings) -> Placement:
    merged: dict[ListenerKey, ImportedListener] = {}
    notes: list[Note] = []
    for listener in listeners:
        merged[listener.key] = _merged(merged[listener.key], listener, notes) if listener.key in merged else listener
    validations = _validations(merged.values(), settings)
    placed: dict[ObjectName, list[ImportedListener]] = {}
    gateways: dict[ListenerKey, ObjectName] = {}
    for key, listener in sorted(merged.items(), key=lambda item: _order(item[1])):
        owner = listener.gateway or settings.gateway
        if listener.clients is not None and len(validations[owner, listener.port]) > 1:
            owner = _own_gateway(owner, listener, notes)
        gateways[key] = owner
        placed.setdefault(owner, []).append(listener)
    return Placement(placed, gateways, tuple(notes))


def _validations(
    listeners: Iterable[ImportedListener], settings: ImportSettings
) -> dict[tuple[ObjectName, int], list[ClientValidation | None]]:
    """Returns the ways in which the clients of each port are verified."""
    validations: dict[tuple[ObjectName, int], list[ClientValidation | None]] = {}
    for listener in listeners:
        if listener.protocol == "HTTPS":
            ways = validations.setdefault((listener.gateway or settings.gateway, listener.port), [])
            if listener.clients not in ways:
                ways.append(listener.clients)
    return validations


def _merged(first: ImportedListener, second: ImportedListener, notes: list[Note]) -> ImportedListener:
    certificates = tuple(dict.fromkeys((*first.certificates, *second.certificates)))
    copyable = tuple(certificate for certificate in certificates if not isinstance(certificate, ForeignCertificate))
    if first.clients and second.clients and first.clients != second.clients:
        text = f"clients of {first.hostname or 'all hosts'} are verified in two ways; {first.source.object} decides"
        notes.append(Note(Category.ACCESS_CONTROL, "client-validation-conflict", text, second.source))
    return msgspec.structs.replace(first, certificates=copyable or certificates, clients=first.clients or second.clients)


def _own_gateway(owner: ObjectName, listener: ImportedListener, notes: list[Note]) -> ObjectName:
    """Returns a separate Gateway for a host with another verification of clients: a Gateway verifies the clients of all hosts
    of a port alike."""
    assert listener.clients is not None
    first = listener.clients.trust[0].name if listener.clients.trust else "clients"
    suffix = f"{first}-optional" if listener.clients.optional else first
    suffix += "".join(f"-{slug(str(reference))}" for reference in listener.clients.revocation)
    gateway = ObjectName(owner.namespace, shortened(f"{owner.name}-{suffix}"))
    text = f"clients of {listener.hostname or 'all hosts'} are verified in another way than those of other hosts"
    remedy = "Point its DNS name to the address of that Gateway."
    notes.append(Note(Category.CHANGED, "own-gateway", text, listener.source, remedy=remedy, target=f"Gateway {gateway}"))
    return gateway


class GatewaysWritten(StageOutput, frozen=True, kw_only=True):
    parents: Mapping[ListenerKey, RouteAttachment]
    """The parent of the routes of each listener."""


def write_gateways(
    context: WriterContext,
    placement: Placement,
    rules: Sequence[ImportedRule],
    client_certificates: Mapping[ObjectName, ObjectName],
    copied: CopiedCAs,
    *,
    profile: bool,
) -> GatewaysWritten:
    """Writes Gateways with up to 64 listeners, and ListenerSets with the others; with --parent only finds parents of routes.

    `client_certificates`: the certificates that Gateways show to their backends; `copied`: CAs that policies already use;
    `profile`: whether a GatewayProfile must allow waivers.
    """
    objects = context.objects([("ConfigMap", namespace, name) for (namespace, *_), name in copied.items()])
    trust = TrustWriter(context, objects, copied)
    writer = GatewayWriter(context, objects, trust, client_certificates)
    writer.write(placement.listeners, _users(rules), profile)
    return GatewaysWritten(
        objects=tuple(objects.objects),
        notes=(*writer.notes, *trust.notes),
        grants=frozenset(writer.grants),
        parents=writer.parents,
    )


class GatewayWriter:
    def __init__(
        self,
        context: WriterContext,
        objects: ObjectWriter,
        trust: TrustWriter,
        client_certificates: Mapping[ObjectName, ObjectName],
    ) -> None:
        self._inputs = context.inputs
        self._settings = context.settings
        self._objects = objects
        self._client_certificates = client_certificates
        self.notes: list[Note] = []
        self.grants: set[Grant] = set()
        self._clients = ValidationWriter(trust, self.notes, self.grants)
        self.parents: dict[ListenerKey, RouteAttachment] = {}

    def write(
        self,
        placed: Mapping[ObjectName, Sequence[ImportedListener]],
        users: Mapping[ListenerKey, set[str]],
        profile: bool,
    ) -> None:
        if self._settings.parent:
            for listeners in placed.values():
                for listener in listeners:
                    self.parents[listener.key] = RouteAttachment(self._to_parent(listener), listener.hostname)
            return
        if placed:
            self._objects.add(OutputFile.GATEWAY, self._gateway_class(), ())
        for owner, listeners in placed.items():
            names = _names(listeners)
            first, *further = [listeners[i : i + MAX_LISTENERS] for i in range(0, len(listeners), MAX_LISTENERS)]
            self._gateway(owner, first, names, users, bool(further), profile)
            for number, chunk in enumerate(further, 2):
                self._listener_set(owner, f"{owner.name}-{number}", chunk, names, users)

    def _to_parent(self, listener: ImportedListener) -> Json:
        assert self._settings.parent is not None
        namespace, name = self._settings.parent
        if self._settings.parent_listener:
            return {"name": name, "namespace": namespace, "sectionName": self._settings.parent_listener}
        return {"name": name, "namespace": namespace, "port": listener.port}

    def _gateway_class(self) -> Json:
        return {
            "apiVersion": API,
            "kind": "GatewayClass",
            "metadata": {"name": self._settings.gateway_class},
            "spec": {"controllerName": CONTROLLER_NAME},
        }

    def _gateway(
        self,
        owner: ObjectName,
        listeners: Sequence[ImportedListener],
        names: Mapping[ListenerKey, str],
        users: Mapping[ListenerKey, set[str]],
        sets: bool,
        profile: bool,
    ) -> None:
        spec: Json = {"gatewayClassName": self._settings.gateway_class}
        spec["listeners"] = [self._listener(owner, listener, names, users, "Gateway") for listener in listeners]
        if sets:
            spec["allowedListeners"] = {"namespaces": {"from": "Same"}}
        if tls := self._tls(owner, listeners):
            spec["tls"] = tls
        if profile:
            reference = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": self._settings.gateway.name}
            spec["infrastructure"] = {"parametersRef": reference}
        self._add("Gateway", owner, spec, listeners)
        for listener in listeners:
            reference = {"name": owner.name, "namespace": owner.namespace, "sectionName": names[listener.key]}
            self.parents[listener.key] = RouteAttachment(reference, listener.hostname)

    def _listener_set(
        self,
        owner: ObjectName,
        name: str,
        listeners: Sequence[ImportedListener],
        names: Mapping[ListenerKey, str],
        users: Mapping[ListenerKey, set[str]],
    ) -> None:
        listener_set = ObjectName(owner.namespace, name)
        spec: Json = {"parentRef": {"name": owner.name}}
        spec["listeners"] = [self._listener(listener_set, listener, names, users, "ListenerSet") for listener in listeners]
        self._add("ListenerSet", listener_set, spec, listeners)
        for listener in listeners:
            reference = {"kind": "ListenerSet", "name": name, "namespace": owner.namespace, "sectionName": names[listener.key]}
            self.parents[listener.key] = RouteAttachment(reference, listener.hostname)

    def _add(self, kind: str, owner: ObjectName, spec: Json, listeners: Sequence[ImportedListener]) -> None:
        metadata = {"name": owner.name, "namespace": owner.namespace}
        sources = [listener.source for listener in listeners]
        self._objects.add(OutputFile.GATEWAY, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}, sources)

    def _listener(
        self,
        owner: ObjectName,
        listener: ImportedListener,
        names: Mapping[ListenerKey, str],
        users: Mapping[ListenerKey, set[str]],
        kind: str,
    ) -> Json:
        written: Json = {"name": names[listener.key], "port": listener.port, "protocol": listener.protocol}
        if listener.hostname:
            written["hostname"] = listener.hostname
        if listener.passthrough:
            written["tls"] = {"mode": "Passthrough"}
        elif listener.protocol in ("HTTPS", "TLS"):
            refs = [self._certificate(owner, certificate, listener, kind) for certificate in listener.certificates]
            refs = refs or [self._certificate(owner, ForeignCertificate("no certificate is named"), listener, kind)]
            written["tls"] = {
                "mode": "Terminate",
                "certificateRefs": [ref for n, ref in enumerate(refs) if ref not in refs[:n]],
            }
        namespaces = sorted({*listener.routes_from, *users.get(listener.key, set())})
        if namespaces and namespaces != [owner.namespace]:
            written["allowedRoutes"] = {"namespaces": _allowed(namespaces)}
        return written

    def _certificate(
        self,
        owner: ObjectName,
        certificate: SecretCertificate | InlineCertificate | ForeignCertificate,
        listener: ImportedListener,
        kind: str,
    ) -> Json:
        match certificate:
            case SecretCertificate(namespace, name) if is_dns_label(namespace) and is_dns_subdomain(name):
                self._note_secret(ObjectName(namespace, name), listener.source)
                return self._secret(owner, ObjectName(namespace, name), kind)
            case InlineCertificate(namespace, name, chain, key) if is_dns_label(namespace) and is_dns_subdomain(name):
                if self._settings.with_secrets:
                    metadata = {"name": name, "namespace": namespace}
                    data = {"tls.crt": chain, "tls.key": key.reveal()}
                    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}
                    self._objects.add(OutputFile.SECRETS, {**secret, "stringData": data}, (listener.source,))
                else:
                    text = f"the certificate is in the object itself, with its key; Secret {namespace}/{name} is not written"
                    remedy = "Pass --with-secrets, or create the Secret."
                    self.notes.append(Note(Category.TODO, "inline-certificate", text, listener.source, remedy=remedy))
                return self._secret(owner, ObjectName(namespace, name), kind)
            case _:
                return self._placeholder(owner, certificate, listener, kind)

    def _placeholder(
        self,
        owner: ObjectName,
        certificate: SecretCertificate | InlineCertificate | ForeignCertificate,
        listener: ImportedListener,
        kind: str,
    ) -> Json:
        """Returns a reference to the default certificate, or to a Secret that does not exist, which closes the listener."""
        if self._settings.default_certificate:
            return self._secret(owner, self._settings.default_certificate, kind)
        problem = (
            certificate.reason
            if isinstance(certificate, ForeignCertificate)
            else f"{certificate.name!r} is not the name of a Secret"
        )
        host = listener.hostname or f"port {listener.port}"
        remedy = f"Create Secret {owner.namespace}/{_TODO_CERTIFICATE}, or pass --default-certificate NS/SECRET."
        text = f"the import found no certificate for {host}: {problem}"
        self.notes.append(Note(Category.TODO, "default-certificate", text, listener.source, remedy=remedy))
        return self._secret(owner, ObjectName(owner.namespace, _TODO_CERTIFICATE), kind)

    def _secret(self, owner: ObjectName, secret: ObjectName, kind: str) -> Json:
        if secret.namespace == owner.namespace:
            return {"name": secret.name}
        self.grants.add((kind, owner.namespace, "Secret", secret.namespace, secret.name))
        return {"name": secret.name, "namespace": secret.namespace}

    def _note_secret(self, secret: ObjectName, source: SourceRef) -> None:
        if self._inputs.find("Secret", *secret) is None:
            text = f"Secret {secret} {self._inputs.absence('Secret', *secret)}; its listener is closed while it is missing"
            severity = NoteSeverity.WARNING
            self.notes.append(Note(Category.TODO, "secret-missing", text, source, severity=severity))
        elif not self._settings.in_cluster and not self._settings.with_secrets:
            text = f"Secret {secret} is not copied, because it holds a private key"
            remedy = "Apply it as before, or pass --with-secrets for a folder."
            note = Note(Category.TODO, "secret-not-copied", text, source, remedy=remedy, severity=NoteSeverity.INFO)
            self.notes.append(note)

    def _tls(self, owner: ObjectName, listeners: Sequence[ImportedListener]) -> Json:
        tls: Json = {}
        if client := self._client_certificates.get(owner):
            tls["backend"] = {
                "clientCertificateRef": {"group": "", "kind": "Secret", **self._secret(owner, client, "Gateway")}
            }
        ports = {listener.port: listener.clients for listener in listeners if listener.clients is not None}
        if ports:
            places = {listener.port: listener.source for listener in listeners if listener.clients is not None}
            validated = [
                {"port": port, "tls": self._clients.validation(owner, clients, places[port])}
                for port, clients in sorted(ports.items())
            ]
            tls["frontend"] = {"default": {}, "perPort": validated}
        return tls


_TODO_CERTIFICATE: Final = "default-certificate-todo"


def _order(listener: ImportedListener) -> tuple[object, ...]:
    """Returns the sort key of listeners. Plain HTTP comes first, so that the Gateway itself has it, not a ListenerSet."""
    protocols = ("HTTP", "HTTPS", "TLS", "TCP", "UDP")
    return (protocols.index(listener.protocol), listener.port, listener.hostname.split(".")[::-1], str(listener.gateway))


def _names(listeners: Sequence[ImportedListener]) -> dict[ListenerKey, str]:
    """Returns a name for each listener, for example `https-shop-example-org`. It contains ports other than 80 and 443."""
    names: dict[ListenerKey, str] = {}
    taken: set[str] = set()
    for listener in listeners:
        usual = {"HTTP": 80, "HTTPS": 443}.get(listener.protocol) == listener.port
        parts = [
            listener.protocol.lower(),
            *([] if usual else [str(listener.port)]),
            *([slug(listener.hostname)] if listener.hostname else []),
        ]
        name = base = shortened("-".join(parts))
        number = 1
        while name in taken:
            number += 1
            name = shortened(f"{base}-{number}")
        taken.add(name)
        names[listener.key] = name
    return names


def _users(rules: Sequence[ImportedRule]) -> dict[ListenerKey, set[str]]:
    namespaces: dict[ListenerKey, set[str]] = {}
    for rule in rules:
        for key in rule.listeners:
            namespaces.setdefault(key, set()).add(rule.namespace)
    return namespaces


def _allowed(namespaces: Sequence[str]) -> Json:
    if len(namespaces) > MAX_NAMESPACES:
        return {"from": "All"}
    expression = {"key": NAMESPACE_LABEL, "operator": "In", "values": list(namespaces)}
    return {"from": "Selector", "selector": {"matchExpressions": [expression]}}
