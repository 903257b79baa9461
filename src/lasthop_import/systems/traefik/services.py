"""Reads the services of routes as hops: Services, and TraefikServices with their weights and mirrors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter, SessionPersistence
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import Backend, HopTLS, HostBackend, ImportedHop, ImportedMirror, ServiceBackend
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.rule_hops import unseen_service
from lasthop_import.systems.traefik.backend_tls import Transport, default_transport, hop_tls, read_transport
from lasthop_import.systems.traefik.kinds import CRD, OTHER_PROVIDER, PREFIX, TraefikObjects
from lasthop_import.systems.traefik.static import Static
from lasthop_import.values import TOKEN, cookie_sessions, is_host, url_rewrite

UNKNOWN: Final = "unknown"
"""The scheme if the Service that determines it is not in the input."""
SESSION: Final = "lasthop-session"
DEEPEST: Final = 10
MOST_WEIGHT: Final = 1_000_000
_BALANCING: Final = {
    "strategy": "the new gateway balances in its own way",
    "responseForwarding": "responses are streamed",
    "healthCheck": "backends are not checked actively",
    "passiveHealthCheck": "failing backends are not taken out",
    "nodePortLB": "backends are reached by their Pods, not by nodes",
}


class ServiceReference(NamedTuple):
    """A reference to a service, with its connection settings."""

    source: SourceRef
    namespace: str
    name: str
    port: int | str | None
    scheme: str
    transport: str
    native: bool
    pass_host: bool


class ServiceHops(NamedTuple):
    hops: tuple[ImportedHop, ...] = ()
    mirrors: tuple[ImportedMirror, ...] = ()
    persistence: SessionPersistence | None = None
    middlewares: tuple[FieldReader, ...] = ()
    """References to middlewares in the services; they apply after those of the route."""
    refused: str = ""
    """The reason why Traefik does not serve the route."""


class _Share(NamedTuple):
    hop: ImportedHop
    weight: Fraction


class TraefikServices:
    def __init__(self, inputs: Inputs, objects: TraefikObjects, static: Static) -> None:
        self._inputs = inputs
        self._objects = objects
        self.static = static
        self._transports: dict[tuple[str, str], Transport | str] = {}

    def read(self, services: list[FieldReader], namespace: str) -> ServiceHops:
        reading = _ServiceReader(self, self._objects)
        shares = reading.weighted(services, namespace, Fraction(1), ())
        return ServiceHops(
            _integral(shares), tuple(reading.mirrors), reading.persistence, tuple(reading.middlewares), reading.refused
        )

    # --- a hop -------------------------------------------------------------------------------------------------------

    def hop(self, reference: ServiceReference) -> ImportedHop:
        backend = self.backend(reference)
        scheme = self._scheme(reference)
        filters: tuple[HTTPRouteFilter, ...] = ()
        if not reference.pass_host and isinstance(backend, HostBackend) and is_host(backend.hostname):
            filters = url_rewrite(backend.hostname)
        tls = self._tls(reference, backend, scheme)
        return ImportedHop(reference.source, backend, tls, h2c=scheme == "h2c", filters=filters)

    def annotated(self, backend: ServiceBackend, source: SourceRef) -> tuple[ServiceReference, dict[str, str]]:
        """Returns the reference to a Service with the settings in its annotations, which Traefik reads for Ingresses."""
        service_annotations = self._inputs.annotations("Service", backend.namespace, backend.name)
        prefix = f"{PREFIX}/service."
        settings = {
            key[len(prefix) :].lower(): value.strip() for key, value in service_annotations.items() if key.startswith(prefix)
        }
        reference = ServiceReference(
            source,
            backend.namespace,
            backend.name,
            backend.port,
            settings.get("serversscheme", ""),
            settings.get("serverstransport", ""),
            settings.get("nativelb", "").lower() == "true" or self.static.native_lb,
            settings.get("passhostheader", "true").lower() != "false",
        )
        return reference, settings

    def _scheme(self, reference: ServiceReference) -> str:
        """Returns http, https, h2c or UNKNOWN. With any other scheme the route was not served."""
        if reference.scheme:
            return reference.scheme
        port = self._inputs.port(reference.namespace, reference.name, reference.port)
        number = port.number if port else reference.port
        name = port.name if port else reference.port if isinstance(reference.port, str) else ""
        if number == 443 or str(name).startswith("https"):
            return "https"
        return "http" if self._inputs.ports(reference.namespace, reference.name) is not None else UNKNOWN

    def backend(self, reference: ServiceReference) -> Backend:
        host = self.external_name(reference)
        if not host:
            return ServiceBackend(reference.namespace, reference.name, reference.port)
        number = self._number(reference)
        return HostBackend(reference.namespace, f"{reference.name}-{number}", host, number)

    def _number(self, reference: ServiceReference) -> int:
        """Returns the port of an ExternalName Service. The Service may have no list of ports; 0 if the list lacks the port."""
        port = self._inputs.port(reference.namespace, reference.name, reference.port)
        if port is not None:
            return port.number
        listed = self._inputs.ports(reference.namespace, reference.name)
        return reference.port if isinstance(reference.port, int) and not listed else 0

    def external_name(self, reference: ServiceReference) -> str:
        document = self._inputs.find("Service", reference.namespace, reference.name)
        if document is None or document.spec.get("type") != "ExternalName":
            return ""
        return str(document.spec.get("externalName") or "").lower().rstrip(".")

    def _tls(self, reference: ServiceReference, backend: Backend, scheme: str) -> HopTLS | None:
        if scheme in ("http", "h2c"):
            return None
        if isinstance(backend, ServiceBackend) and scheme == UNKNOWN:
            return unseen_service(self._inputs, backend, "the name of its port, or its annotations,")
        if scheme != "https":
            return HopTLS(OldLevel.BROKEN, f"the scheme {scheme[:40]!r} is unknown to Traefik, so the route was not served")
        transport = self.transport("ServersTransport", reference.transport, reference.namespace)
        if isinstance(transport, str):
            return HopTLS(OldLevel.UNKNOWN, transport)
        dialled = backend.hostname if isinstance(backend, HostBackend) else ""
        if dialled and not self.static.external_names:
            why = "Traefik serves Services of type ExternalName only with allowExternalNameServices"
            return msgspec.structs.replace(hop_tls(transport, dialled), level=OldLevel.BROKEN, why=why, believed=None)
        return hop_tls(transport, dialled, default_known=bool(reference.transport) or self.static.known)

    def transport(self, kind: str, name: str, namespace: str) -> Transport | str:
        """Returns the transport of a reference, or the reason why it is unknown."""
        if not name:
            return default_transport(self.static)
        key = (f"{kind} {namespace}", name)
        if key not in self._transports:
            self._transports[key] = self._transport(kind, name, namespace)
        return self._transports[key]

    def _transport(self, kind: str, name: str, namespace: str) -> Transport | str:
        if name.endswith(CRD):
            reader = self._objects.find_normalized(kind, name.removesuffix(CRD))
        elif OTHER_PROVIDER in name:
            return f"the transport {name[:100]} belongs to another provider; the input lacks its verification settings"
        else:
            reader = self._objects.find(kind, namespace, name)
        if reader is None:
            return f"{kind} {name[:100]} is not in the input; without it Traefik answers 500"
        transport = read_transport(self._inputs, reader)
        if transport.sans and transport.server_name and not transport.skip and not transport.mesh:
            text = "the serverName and one of peerCertSANs had to match; one of peerCertSANs suffices now"
            reader.child("spec").note(Category.LOOSENED, "and-became-or", text, None)
        return transport


class _ServiceReader:
    """Collects the hops and settings of the services of one route."""

    def __init__(self, services: TraefikServices, objects: TraefikObjects) -> None:
        self._services = services
        self._objects = objects
        self.mirrors: list[ImportedMirror] = []
        self.persistence: SessionPersistence | None = None
        self.middlewares: list[FieldReader] = []
        self.refused = ""

    def weighted(self, services: list[FieldReader], namespace: str, share: Fraction, path: tuple[str, ...]) -> list[_Share]:
        """Returns the hops of services, which divide a share of the requests."""
        weights = [_weight(service) for service in services]
        total = sum(weights) or 1
        shares: list[_Share] = []
        for service, weight in zip(services, weights, strict=True):
            shares += self.service(service, namespace, share * weight / total, path)
        return shares

    def service(self, reader: FieldReader, parent: str, share: Fraction, path: tuple[str, ...]) -> list[_Share]:
        name, kind = reader.text("name"), reader.text("kind") or "Service"
        namespace = reader.text("namespace") or parent
        self.middlewares += reader.children("middlewares")
        for key, text in _BALANCING.items():
            reader.cannot(key, text)
        self._sticky(reader.child("sticky"))
        permitted = namespace == parent or self._services.static.cross_namespace
        reference = self._reference(reader, namespace, name)
        if OTHER_PROVIDER in name and not name.endswith(CRD):
            self.refused = f"the service {name[:100]} is of another provider, and not in the input"
            return []
        if kind == "TraefikService":
            return self._traefik_service(name.removesuffix(CRD), namespace, permitted, share, path)
        if kind != "Service":
            self.refused = f"a backend of kind {kind[:100]} was never served"
            return []
        if not permitted:
            self.refused = not_permitted(f"Service {namespace}/{name}")
        hop = self._services.hop(reference)
        self._note_hop(reader, hop, reference)
        return [_Share(hop, share)]

    def _reference(self, reader: FieldReader, namespace: str, name: str) -> ServiceReference:
        native = reader.boolean("nativeLB", self._services.static.native_lb)
        scheme, transport = reader.text("scheme"), reader.text("serversTransport")
        return ServiceReference(
            reader.source(),
            namespace,
            name,
            reader.port("port"),
            scheme,
            transport,
            native,
            reader.boolean("passHostHeader", True),
        )

    def _note_hop(self, reader: FieldReader, hop: ImportedHop, reference: ServiceReference) -> None:
        if not reference.pass_host and not hop.filters:
            text = "the Host was the address of the Pod, and is the request's own now"
            reader.note(Category.CHANGED, "host-passed", text, "passHostHeader")
        if reference.native and hop.tls is not None and hop.tls.level is OldLevel.IP_NAME:
            text = "the name to check was the Service's ClusterIP, not a Pod's"
            reader.note(Category.CHANGED, "native-lb", text, "nativeLB", severity=NoteSeverity.INFO)
        if hop.tls is None and isinstance(hop.backend, HostBackend) and not self._services.static.external_names:
            text = "Traefik serves Services of type ExternalName only with allowExternalNameServices"
            reader.note(Category.CHANGED, "external-name", text, None)

    def _traefik_service(
        self, name: str, namespace: str, permitted: bool, share: Fraction, path: tuple[str, ...]
    ) -> list[_Share]:
        label = f"{namespace}/{name}"
        reader = self._objects.find("TraefikService", namespace, name)
        if reader is None or label in path or len(path) > DEEPEST or not permitted:
            why = "refers to itself" if label in path else "is not in the input, or nested too deeply"
            self.refused = f"TraefikService {label} {why}" if permitted else not_permitted(f"TraefikService {label}")
            return []
        spec, path = reader.child("spec"), (*path, label)
        if "weighted" in spec:
            weighted = spec.child("weighted")
            self._sticky(weighted.child("sticky"))
            return self.weighted(weighted.children("services"), namespace, share, path)
        if "mirroring" in spec:
            return self._mirroring(spec.child("mirroring"), namespace, share, path)
        if "highestRandomWeight" in spec:
            ranked = spec.child("highestRandomWeight")
            text = "a client always reached the same backend; requests are distributed by weight now"
            ranked.note(Category.CHANGED, "affinity-dropped", text, None)
            return self.weighted(ranked.children("services"), namespace, share, path)
        if "failover" in spec:
            failover = spec.child("failover")
            failover.cannot("fallback", "there is no second backend for when the first fails")
            failover.cannot("errors", "belongs to the fallback")
            return self.service(failover.child("service"), namespace, share, path)
        self.refused = f"TraefikService {label} has no setting that Traefik knows"
        return []

    def _mirroring(self, reader: FieldReader, namespace: str, share: Fraction, path: tuple[str, ...]) -> list[_Share]:
        reader.cannot("maxBodySize", "a mirrored request has its body, of any size")
        reader.cannot("mirrorBody", "a mirrored request has its body")
        for mirror in reader.children("mirrors"):
            percent = mirror.integer("percent", 0) or 0
            for mirrored in self.service(mirror, namespace, Fraction(1), path):
                if 0 < percent <= 100:
                    self.mirrors.append(ImportedMirror(mirrored.hop, percent))
        return self.service(reader, namespace, share, path)

    def _sticky(self, sticky: FieldReader) -> None:
        cookie = sticky.child("cookie")
        if "cookie" not in sticky:
            return
        name, path, age = cookie.text("name"), cookie.text("path") or "/", cookie.integer("maxAge", 0) or 0
        for key in ("secure", "httpOnly", "sameSite", "domain"):
            cookie.cannot(key, "this part of the cookie cannot be set")
        if not TOKEN.fullmatch(name) and name:
            cookie.cannot("name", "the cookie's name cannot be written", "affinity-dropped")
        elif age <= 0:
            self.persistence = cookie_sessions(name or SESSION, path)
        else:
            self.persistence = cookie_sessions(name or SESSION, path, f"{min(age, 99999)}s")


def not_permitted(subject: str) -> str:
    """Returns the reason why a route that refers to another namespace was not served."""
    return f"{subject[:200]} is in another namespace, which Traefik allows only with allowCrossNamespace (--traefik-static)"


def _weight(reader: FieldReader) -> int:
    weight = reader.integer("weight", 1)
    return max(0, min(weight if weight is not None else 1, MOST_WEIGHT))


def _integral(shares: list[_Share]) -> tuple[ImportedHop, ...]:
    """Returns the hops with integer weights."""
    if len(shares) == 1:
        return (shares[0].hop,)
    scale = math.lcm(*(share.weight.denominator for share in shares)) if shares else 1
    weights = [int(share.weight * scale) for share in shares]
    divisor = math.gcd(*weights) or 1
    largest = max((weight // divisor for weight in weights), default=1)
    shrink = max(1, -(-largest // MOST_WEIGHT))
    return tuple(
        msgspec.structs.replace(share.hop, weight=max(1, weight // divisor // shrink) if weight else 0)
        for share, weight in zip(shares, weights, strict=True)
    )
