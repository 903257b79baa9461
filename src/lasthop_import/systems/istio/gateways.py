"""Translates the servers of Gateways to listeners.

Gateways that select the same Pods share a proxy and its address. They become one Gateway, with the name of the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ClientValidation,
    FileTrust,
    ForeignCertificate,
    ImportedListener,
    ImportedRule,
    ObjectName,
    SecretCertificate,
    TrustRef,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.istio.kinds import CRL_KEYS, GATEWAY, Mesh
from lasthop_import.values import https_redirect_rule, is_host, is_port

HTTP: Final = ("HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY")
TCP: Final = ("TCP", "MONGO", "MYSQL", "REDIS")
_FILES: Final = ("serverCertificate", "privateKey", "tlsCertificates")
_FRONT: Final = {
    "minProtocolVersion": "TLS versions for clients cannot be set by listener",
    "maxProtocolVersion": "TLS versions for clients cannot be set by listener",
    "cipherSuites": "ciphers for clients cannot be set by listener",
}
_NARROWER: Final = {
    "subjectAltNames": "only client certificates with these names were accepted",
    "verifyCertificateSpki": "only client certificates with these keys were accepted",
    "verifyCertificateHash": "only these client certificates were accepted",
}
_TERMINATION: Final = (
    *(*_FILES, *_FRONT, *_NARROWER),
    *("credentialName", "credentialNames", "caCertificates", "caCertCredentialName", "caCrl", "insecureSkipVerify"),
)
"""Fields that count only where the gateway terminates the client's TLS."""


class GatewayServer(msgspec.Struct, frozen=True):
    """One host of one server."""

    listener: ImportedListener
    namespace: str
    """The namespace whose VirtualServices may use it; empty means all."""
    redirects: bool
    passthrough: bool


class IstioGateway(msgspec.Struct, frozen=True):
    document: Document
    selector: Mapping[str, str]
    namespace: str
    """The namespace of the gateway's Pods."""
    servers: tuple[GatewayServer, ...]


class Gateways:
    def __init__(self, gateways: Iterable[IstioGateway], redirects: Sequence[ImportedRule]) -> None:
        self._by_name = {gateway.document.path: gateway for gateway in gateways}
        self.redirects = redirects
        self._used: set[str] = set()

    @property
    def listeners(self) -> list[ImportedListener]:
        return [server.listener for gateway in self._by_name.values() for server in gateway.servers]

    def use(self, name: str) -> IstioGateway | None:
        gateway = self._by_name.get(name)
        if gateway is not None:
            self._used.add(name)
        return gateway

    def note_unused(self, inputs: Inputs) -> None:
        for name, gateway in self._by_name.items():
            if name not in self._used:
                text = "no VirtualService names it; its listeners are written, and lead nowhere"
                inputs.open(gateway.document).note(Category.CHANGED, "unused", text, severity=NoteSeverity.INFO)


def read_gateways(inputs: Inputs, settings: ImportSettings, mesh: Mesh) -> Gateways:
    """Reads all Gateways, oldest first."""
    names: dict[tuple[tuple[str, str], ...], ObjectName] = {}
    gateways, redirects = list[IstioGateway](), list[ImportedRule]()
    taken: dict[tuple[ObjectName | None, int, str], str] = {}
    for document in inputs.of(GATEWAY):
        spec = inputs.open(document).child("spec")
        selector = spec.text_map("selector")
        own_name = ObjectName(document.namespace, document.bare_name)
        name = names.setdefault(tuple(sorted(selector.items())), own_name)
        if name != own_name:
            text = f"selects the same Pods as Gateway {name}, so that its listeners are part of that one"
            spec.note(Category.CHANGED, "gateways-merged", text, "selector", severity=NoteSeverity.INFO)
        namespace = str(settings.flags.get("istio-gateway-namespace") or _pods_namespace(inputs, selector) or mesh.root)
        servers = []
        for server_reader in spec.children("servers"):
            servers += _without_conflicts(server_reader, _servers(inputs, server_reader, name, namespace), taken)
        gateways.append(IstioGateway(document, selector, namespace, tuple(servers)))
        if redirecting := [server for server in servers if server.redirects]:
            redirects.append(_redirect(document, redirecting))
    return Gateways(gateways, redirects)


def _without_conflicts(
    reader: FieldReader, servers: Sequence[GatewayServer], taken: dict[tuple[ObjectName | None, int, str], str]
) -> list[GatewayServer]:
    """Returns the servers without a protocol conflict. For each port, and each port and host, the oldest server decides."""
    kept = []
    for server in servers:
        listener = server.listener
        port_protocol = "TLS" if listener.protocol == "HTTPS" else listener.protocol
        host_protocol = f"{listener.protocol} {listener.passthrough}"
        by_port = taken.setdefault((listener.gateway, listener.port, ""), port_protocol)
        if (
            by_port == port_protocol
            and taken.setdefault((listener.gateway, listener.port, f"host {listener.hostname}"), host_protocol)
            == host_protocol
        ):
            kept.append(server)
        else:
            text = f"port {listener.port} has another protocol in an older server, which Istio uses; this one is left out"
            reader.note(Category.CANNOT, "port-conflict", text, "port", severity=NoteSeverity.HIGH)
    return kept


def _pods_namespace(inputs: Inputs, selector: Mapping[str, str]) -> str:
    """Returns the namespace of the Service for the Pods that a Gateway selects."""
    for document in inputs.documents if selector else ():
        labels = document.spec.get("selector") if document.kind == "Service" else None
        if isinstance(labels, dict) and selector.items() <= labels.items():
            return document.namespace
    return ""


def _redirect(document: Document, servers: Sequence[GatewayServer]) -> ImportedRule:
    listeners = tuple(server.listener.key for server in servers)
    return https_redirect_rule(servers[0].listener.source, document.namespace, document.bare_name, listeners, ())


def _servers(inputs: Inputs, reader: FieldReader, gateway: ObjectName, namespace: str) -> list[GatewayServer]:
    port = reader.child("port")
    number, protocol = port.integer("number") or 0, port.text("protocol").upper()
    port.ignore("name", "targetPort")
    reader.ignore("name")
    reader.cannot("bind", "a Gateway listens on its own address")
    reader.cannot("defaultEndpoint", "there is no default endpoint of a listener")
    tls, hosts = reader.child("tls"), reader.texts("hosts")
    redirects, mode = tls.boolean("httpsRedirect"), tls.text("mode", "PASSTHROUGH")
    shape = _shape(reader, tls, protocol, mode)
    if shape is None or not is_port(number):
        if shape is not None:
            text = "the server has no valid port.number, and is left out"
            reader.note(Category.CANNOT, "no-port", text, "port", severity=NoteSeverity.HIGH)
        tls.ignore(*_TERMINATION)
        return []
    kind, passthrough = shape
    base = ImportedListener(reader.source(), number, kind, passthrough=passthrough, gateway=gateway)
    if kind in ("HTTPS", "TLS") and not passthrough:
        base = _terminating(inputs, base, tls, namespace, mode)
    tls.ignore(*_TERMINATION)
    return [
        GatewayServer(listener, only, redirects and kind == "HTTP", passthrough)
        for listener, only in _hosts(reader, base, hosts)
    ]


def _terminating(inputs: Inputs, base: ImportedListener, tls: FieldReader, namespace: str, mode: str) -> ImportedListener:
    """Returns a listener with certificates and client validation."""
    certificates, clients = _certificates(inputs, tls, namespace), _clients(inputs, tls, namespace, mode)
    return msgspec.structs.replace(base, certificates=certificates, clients=clients)


def _hosts(reader: FieldReader, base: ImportedListener, hosts: Sequence[str]) -> Iterator[tuple[ImportedListener, str]]:
    """Yields the listener of each host, and the only namespace whose VirtualServices may use it ("" for all)."""
    for host in hosts:
        owner, _, name = host.rpartition("/")
        name = "" if name == "*" else name.lower()
        if name and not is_host(name):
            text = f"{name[:100]} cannot be the hostname of a listener, and is left out"
            reader.note(Category.CANNOT, "host", text, severity=NoteSeverity.HIGH)
            continue
        if base.protocol == "TCP" and name:
            reader.note(Category.CHANGED, "tcp-host", "a TCP listener has no hostname", "hosts", severity=NoteSeverity.INFO)
            name = ""
        only = {".": reader.namespace, "*": ""}.get(owner, owner)
        yield msgspec.structs.replace(base, hostname=name, routes_from=(only,) if only else ()), only


def _shape(reader: FieldReader, tls: FieldReader, protocol: str, mode: str) -> tuple[str, bool] | None:
    """Returns the listener's protocol, and whether it passes TLS through; None without an equivalent listener."""
    if protocol in HTTP:
        return ("HTTP", False)
    if protocol in TCP and "mode" not in tls:
        return ("TCP", False)
    if protocol not in ("HTTPS", "TLS", *TCP):
        text = "is not a protocol of Istio; the server is left out"
        reader.child("port").note(Category.CANNOT, "unknown-protocol", text, "protocol", severity=NoteSeverity.HIGH)
        return None
    if mode == "PASSTHROUGH":
        if "mode" not in tls:
            text = "tls has no mode, which is PASSTHROUGH: the certificate of the server, if any, is not used"
            reader.note(Category.CHANGED, "passthrough-by-default", text)
        return ("TLS", True)
    if mode in ("SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL"):
        return ("HTTPS" if protocol == "HTTPS" else "TLS", False)
    text = "uses certificates of the mesh, or its SNI, and has no equivalent; the server is left out"
    tls.note(Category.CANNOT, "mesh-listener", text, "mode", severity=NoteSeverity.HIGH)
    return None


def _certificates(inputs: Inputs, tls: FieldReader, namespace: str) -> tuple[Certificate, ...]:
    for key, text in _FRONT.items():
        tls.cannot(key, text)
    names = tuple(dict.fromkeys(filter(None, (tls.text("credentialName"), *tls.texts("credentialNames")))))
    if not names:
        files = any(key in tls for key in _FILES)
        return (ForeignCertificate("it is in files of the proxy" if files else "tls has no credentialName"),)
    for name in names:
        data = inputs.data("Secret", namespace, name)
        if data is not None and "tls.crt" not in data:
            text = f"Secret {namespace}/{name} has no tls.crt and tls.key, which a listener needs"
            remedy = "Write these keys into the Secret."
            tls.note(Category.TODO, "secret-keys", text, "credentialName", remedy=remedy, severity=NoteSeverity.WARNING)
    return tuple(SecretCertificate(namespace, name) for name in names)


def _clients(inputs: Inputs, tls: FieldReader, namespace: str, mode: str) -> ClientValidation | None:
    """Returns the validation of clients. A missing CA closes the listener."""
    if mode == "SIMPLE":
        return None
    for key, text in _NARROWER.items():
        tls.access_control(key, text)
    if tls.boolean("insecureSkipVerify"):
        text = "client certificates were requested and not verified; the gateway accepts clients without a valid one"
        tls.note(Category.CHANGED, "client-validation-optional", text, "insecureSkipVerify")
    optional = mode == "OPTIONAL_MUTUAL" or bool(tls.value.get("insecureSkipVerify"))
    credential = tls.text("credentialName")
    ca_credential, crl = tls.text("caCertCredentialName"), tls.text("caCrl")
    for name in filter(None, (ca_credential,) if ca_credential else (f"{credential}-cacert", credential)):
        data = inputs.data("Secret", namespace, name) or {}
        if trust := _client_ca(tls, namespace, name, data, crl):
            return ClientValidation((trust,), optional, _lists(namespace, name, data, crl))
    secret = ca_credential or (f"{credential}-cacert" if credential else "client-ca-todo")
    text = f"the CA of clients is not in the input; the listener is closed until Secret {namespace}/{secret} has a ca.crt"
    tls.note(Category.TODO, "client-ca-missing", text, "mode", remedy="Create it.")
    return ClientValidation((TrustRef("Secret", namespace, secret),), optional, _lists(namespace, secret, {}, crl))


def _client_ca(tls: FieldReader, namespace: str, name: str, data: Mapping[str, bytes], crl: str) -> TrustRef | None:
    """Returns the CA of clients in a Secret. Istio also reads the key cacert."""
    if "ca.crt" in data:
        return TrustRef("Secret", namespace, name)
    if "cacert" not in data:
        return None
    text = f"Secret {namespace}/{name} has the CA of clients under cacert; a Gateway reads ca.crt"
    tls.note(Category.TODO, "secret-keys", text, "mode", remedy="Write it as ca.crt too.")
    return TrustRef("Secret", namespace, name, "cacert" if data.keys() & {*CRL_KEYS} or crl else "ca.crt")


def _lists(namespace: str, name: str, data: Mapping[str, bytes], file: str) -> tuple[TrustRef | FileTrust, ...]:
    """Returns the revocation lists: a file of the proxy, and the list in the Secret of the CA."""
    beside = [TrustRef("Secret", namespace, name, key) for key in CRL_KEYS if key in data][:1]
    return (FileTrust(file), *beside) if file else tuple(beside)
