"""Resolves the host of a destination to a Service or ServiceEntry, or reports an unknown host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs, PortOfService
from lasthop_import.model import AddressBackend, Backend, HostBackend, ServiceBackend
from lasthop_import.names import shortened, slug
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.istio.kinds import SERVICE_ENTRY, exported, service_of

HTTP2: Final = ("http2", "grpc", "grpc-web")
TLS: Final = ("https", "tls")


class DestinationTarget(NamedTuple):
    """The backend of a destination."""

    backend: Backend
    namespace: str
    """The namespace of the Service or ServiceEntry, to look up its DestinationRule."""
    host: str
    """The host to look up the DestinationRule."""
    port: int
    """0 means unknown."""
    protocol: str
    """In lower case: http, http2, grpc, https, tls, tcp; empty means unknown."""
    external: bool = False
    names: tuple[str, ...] = ()


class _Port(msgspec.Struct, frozen=True):
    number: int
    name: str
    protocol: str
    target: int


class ServiceEntry(msgspec.Struct, frozen=True):
    """The fields of a ServiceEntry."""

    document: Document
    hosts: tuple[str, ...]
    ports: tuple[_Port, ...]
    resolution: str
    endpoints: tuple[tuple[str, Mapping[str, int]], ...]
    """Addresses, each with its ports by name."""
    export_to: tuple[str, ...]
    names: tuple[str, ...]
    problem: str
    """The reason why it cannot be a backend."""


class Destinations:
    def __init__(self, inputs: Inputs, entries: tuple[ServiceEntry, ...]) -> None:
        self._inputs = inputs
        self._entries = entries
        self._used: set[Document] = set()

    def skip_unused(self) -> None:
        for entry in self._entries:
            if entry.document not in self._used:
                self._inputs.skip(entry.document, "unused", "no imported route leads to its hosts")

    def find(self, host: str, port: int | None, listener_port: int, gateway_namespace: str) -> DestinationTarget | str:
        """Returns the target of a host, or the reason why it has none.

        The default port is the host's only port, else the listener's. The port of a Service that is not in the input is
        unknown."""
        entry = next(
            (
                entry
                for entry in self._entries
                if host in entry.hosts and exported(entry.export_to, entry.document.namespace, gateway_namespace)
            ),
            None,
        )
        if entry is not None:
            self._used.add(entry.document)
            return self._entry(entry, host, port, listener_port)
        service = service_of(host)
        if service is not None:
            return self._service(*service, host, port, listener_port)
        if any(host in entry.hosts for entry in self._entries):
            return f"the ServiceEntry of {host} is not exported to namespace {gateway_namespace}"
        return f"no Service and no ServiceEntry of the input has the host {host}"

    def _service(self, namespace: str, name: str, host: str, port: int | None, listener_port: int) -> DestinationTarget:
        ports = self._inputs.ports(namespace, name)
        if ports is None and not port:
            return DestinationTarget(ServiceBackend(namespace, name, None), namespace, host, 0, "")
        number = port or (ports[0].number if ports and len(ports) == 1 else listener_port)
        protocol = _protocol(self._inputs.port(namespace, name, number))
        backend: Backend = ServiceBackend(namespace, name, number)
        document = self._inputs.find("Service", namespace, name)
        spec = document.spec if document else {}
        if spec.get("type") == "ExternalName":
            backend = HostBackend(namespace, shortened(f"{name}-{number}"), str(spec.get("externalName", "")).lower(), number)
        return DestinationTarget(backend, namespace, host, number, protocol)

    def _entry(self, entry: ServiceEntry, host: str, port: int | None, listener_port: int) -> DestinationTarget | str:
        if entry.problem:
            return f"{entry.document.name} {entry.problem}"
        number = port or (entry.ports[0].number if len(entry.ports) == 1 else listener_port)
        entry_port = next((candidate for candidate in entry.ports if candidate.number == number), None)
        if entry_port is None:
            return f"{entry.document.name} has no port {number}"
        backend = _entry_backend(entry, host, entry_port)
        return DestinationTarget(backend, entry.document.namespace, host, number, entry_port.protocol, True, entry.names)


def _protocol(port: PortOfService | None) -> str:
    """Returns the protocol of a Service's port: its appProtocol, or the prefix of its name."""
    if port is None:
        return ""
    app_protocol = port.app_protocol.lower().removeprefix("kubernetes.io/")
    if app_protocol:
        return {"h2c": "http2", "ws": "http", "wss": "https"}.get(app_protocol, app_protocol)
    return "grpc-web" if port.name.startswith("grpc-web") else port.name.partition("-")[0].lower()


def _entry_backend(entry: ServiceEntry, host: str, port: _Port) -> Backend:
    """Returns a backend with the addresses of a ServiceEntry, or its host. The name gets suffixes to be unique."""
    parts = [entry.document.bare_name]
    parts += [slug(host)] if len(entry.hosts) > 1 else []
    parts += [str(port.number)] if len(entry.ports) > 1 else []
    namespace, name = entry.document.namespace, shortened("-".join(parts))
    if entry.resolution == "STATIC":
        addresses = tuple((address, ports.get(port.name, port.target)) for address, ports in entry.endpoints)
        return AddressBackend(namespace, name, port.number, slug(port.name) or "port", addresses)
    address, ports = entry.endpoints[0] if entry.endpoints else (host, {})
    protocol = "H2C" if port.protocol in HTTP2 else ""
    return HostBackend(namespace, name, address, ports.get(port.name, port.target), protocol)


def read_destinations(inputs: Inputs) -> Destinations:
    return Destinations(inputs, tuple(_read(inputs.open(document)) for document in inputs.of(SERVICE_ENTRY)))


def _read(reader: FieldReader) -> ServiceEntry:
    spec = reader.child("spec")
    hosts = tuple(host.lower() for host in spec.texts("hosts"))
    spec.ignore("location")
    spec.cannot("addresses", "virtual addresses are of sidecars, not gateways")
    ports = []
    for port in spec.children("ports"):
        number = port.integer("number") or 0
        ports.append(_Port(number, port.text("name"), port.text("protocol").lower(), port.integer("targetPort") or number))
    resolution = spec.text("resolution", "NONE")
    endpoints = []
    for endpoint in spec.children("endpoints"):
        numbers = endpoint.number_map("ports")
        endpoints.append((endpoint.text("address"), numbers))
        for key in ("labels", "network", "locality", "weight", "serviceAccount"):
            endpoint.cannot(key, "all endpoints are used alike")
    problem = _problem(hosts, resolution, [address for address, _ in endpoints], "workloadSelector" in spec)
    if problem:
        spec.cannot("workloadSelector", "endpoints are chosen by a Service's selector")
        text = f"{problem}; routes to it have no backend"
        spec.note(Category.CANNOT, "service-entry", text, "resolution", severity=NoteSeverity.HIGH)
    names, export_to = spec.texts("subjectAltNames"), spec.texts("exportTo")
    return ServiceEntry(reader.document, hosts, tuple(ports), resolution, tuple(endpoints), export_to, names, problem)


def _problem(hosts: tuple[str, ...], resolution: str, addresses: list[str], selector: bool) -> str:
    if selector:
        return "has a workloadSelector, which needs a Service instead"
    if any("*" in host for host in hosts):
        return "has a wildcard host, which no backend can have"
    if resolution == "STATIC" and addresses and all(map(is_ip, addresses)):
        return ""
    if resolution not in ("DNS", "DNS_ROUND_ROBIN"):
        return f"has resolution {resolution}, for which there is no backend"
    if len(addresses) > 1 or any(map(is_ip, addresses)):
        return "has several endpoints, or addresses as endpoints, with resolution DNS"
    return ""
