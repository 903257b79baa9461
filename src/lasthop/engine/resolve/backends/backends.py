"""Backends: the target of a backendRef, and the endpoints of a Service port, a ServiceImport or an XBackend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.backends import GROUP as XBACKEND_GROUP
from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import AnyService, EndpointSlice, Service
from lasthop.base.api.gateway import GROUP
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.routes import BackendObjectReference
from lasthop.base.text.suggestions import typo_of
from lasthop.engine.plan.limits import MAX_ENDPOINTS
from lasthop.engine.plan.problem import Problem, invalid_kind, ref_not_permitted
from lasthop.engine.plan.upstream import EndpointAddress, Endpoints, EndpointsKind, Protocol
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.backends.app_protocols import H2C, is_plaintext
from lasthop.engine.resolve.backends.grants import permitted
from lasthop.engine.resolve.backends.xbackends import LABELLED
from lasthop.engine.resolve.settings import installed, settings
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

SLICE_LABELS: Final = {"Service": "kubernetes.io/service-name", "ServiceImport": "multicluster.kubernetes.io/service-name"}
"""The labels by which an EndpointSlice belongs to a Service or a ServiceImport, or to one of each."""


class ListedSlice(NamedTuple):
    key: Key
    names: bool
    """Whether its addresses are DNS names."""


SLICES = Index[Key, ListedSlice]("slice")
"""EndpointSlices by Service or ServiceImport."""

FQDN: Final = "FQDN"
"""The addressType of an EndpointSlice whose addresses are DNS names."""
DNS_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")


class BackendTarget(msgspec.Struct, frozen=True):
    """A permitted reference to a port of a Service or ServiceImport, or to an XBackend, which need not exist."""

    backend: Key
    port: int


def target(g: Graph, route: Key, ref: BackendObjectReference, group: str = GROUP) -> BackendTarget | Problem:
    """Returns the target of a backendRef, or why the reference is invalid. `group` is the group of the referring object."""
    if (ref.group, ref.kind) == (XBACKEND_GROUP, XBACKEND):
        backend = Key(XBACKEND, ref.namespace or route.namespace, ref.name)
        if not permitted(g, group, route, XBACKEND_GROUP, backend):
            return ref_not_permitted(route, backend)
        # An XBackend has one port, which a reference need not name.
        port = xbackends.port(g, backend)
        return BackendTarget(backend, port if ref.port in (0, port) else ref.port)
    if SERVICE_GROUPS.get(ref.kind) != ref.group or not installed(g, ref.kind):
        return invalid_kind(ref.kind, ref.group or None, "a Service or an XBackend")
    service = Key(ref.kind, ref.namespace or route.namespace, ref.name)
    if not permitted(g, group, route, ref.group, service):
        return ref_not_permitted(route, service)
    return BackendTarget(service, ref.port)


@query
def speaks_h2c(g: Graph, backend: Key, port: int) -> bool:
    """Returns whether a backend declares HTTP/2 without TLS."""
    if backend.kind == XBACKEND:
        xbackend = read(g, backend, XBackend)
        return xbackend is not None and xbackend.spec.protocol in xbackends.H2C
    service = read(g, backend, AnyService)
    service_port = service.port(port) if service else None
    return service_port is not None and service_port.app_protocol == H2C


@query
def declares_plaintext(g: Graph, backend: Key, port: int, protocol: Protocol) -> bool:
    """Returns whether a backend explicitly declares plaintext. An XBackend's tls.mode None does not, because it is the
    default."""
    if backend.kind == XBACKEND:
        return speaks_h2c(g, backend, port)
    service = read(g, backend, AnyService)
    service_port = service.port(port, protocol.transport) if service else None
    return service_port is not None and is_plaintext(service_port.app_protocol)


def endpoints_kind(g: Graph, backend: Key, port: int, transport: str) -> EndpointsKind:
    """Returns the kind of the endpoints. The list of EndpointSlices decides it, unless some contain DNS names."""
    if backend.kind != XBACKEND and not any(listed.names for listed in SLICES.of(g, backend)):
        service = read(g, backend, AnyService)
        if not isinstance(service, Service) or service.spec.type != "ExternalName":
            return EndpointsKind.ADDRESSES
    return _exact_kind(g, backend, port, transport)


@query
def _exact_kind(g: Graph, backend: Key, port: int, transport: str) -> EndpointsKind:
    return endpoints(g, backend, port, transport).kind


@query
def endpoints(g: Graph, backend: Key, port_number: int, transport: str) -> Endpoints:
    """Returns the usable endpoints up to the limit. An endpoint that Envoy would refuse must not affect the others."""
    if backend.kind == XBACKEND:
        xbackend_endpoints = xbackends.endpoints(g, backend)
        return Endpoints(
            xbackend_endpoints.kind,
            tuple(
                endpoint
                for endpoint in xbackend_endpoints.endpoints[:MAX_ENDPOINTS]
                if _sound(xbackend_endpoints.kind, endpoint)
            ),
        )
    service = read(g, backend, AnyService)
    port = service.port(port_number, transport) if service else None
    if service is None or port is None:
        return Endpoints(EndpointsKind.ADDRESSES)
    if isinstance(service, Service) and service.spec.type == "ExternalName":
        target_port = port.target_port if isinstance(port.target_port, int) and port.target_port else port.port
        kind, external_name = _kind_of(service.spec.external_name), EndpointAddress(service.spec.external_name, target_port)
        return Endpoints(kind, (external_name,) if _sound(kind, external_name) else ())
    return _from_slices(g, backend, port.name, transport)


def _sound(kind: EndpointsKind, endpoint: EndpointAddress) -> bool:
    if not 0 < endpoint.port < 65536:
        return False
    return DNS_NAME.fullmatch(endpoint.address) is not None if kind is EndpointsKind.DNS else is_ip(endpoint.address)


def slices(g: Graph, service: Key) -> list[EndpointSlice]:
    objects = (read(g, key, EndpointSlice) for key, _ in SLICES.of(g, service))
    return [slice for slice in objects if slice]


def _kind_of(name: str) -> EndpointsKind:
    return EndpointsKind.ADDRESSES if is_ip(name) else EndpointsKind.DNS


def _from_slices(g: Graph, service: Key, port_name: str, transport: str) -> Endpoints:
    keys = [key for key, _ in SLICES.of(g, service)]
    if len(keys) == 1:
        only = _of_slice(g, keys[0], port_name, transport)
        return Endpoints(only.kind if only.endpoints else EndpointsKind.ADDRESSES, only.endpoints[:MAX_ENDPOINTS])
    # Each slice has one addressType. If a Service has both, addresses are preferred, because they need no resolver.
    by_kind: dict[EndpointsKind, set[EndpointAddress]] = {kind: set() for kind in EndpointsKind}
    for key in sorted(keys):
        of_slice = _one_of_many(g, key, port_name, transport)
        by_kind[of_slice.kind].update(of_slice.endpoints)
        if len(by_kind[EndpointsKind.ADDRESSES]) >= MAX_ENDPOINTS:
            break
    kind = (
        EndpointsKind.DNS if by_kind[EndpointsKind.DNS] and not by_kind[EndpointsKind.ADDRESSES] else EndpointsKind.ADDRESSES
    )
    return Endpoints(kind, tuple(sorted(by_kind[kind])[:MAX_ENDPOINTS]))


@query
def _one_of_many(g: Graph, key: Key, port_name: str, transport: str) -> Endpoints:
    """Returns the endpoints of one slice. It is a separate query, because a Service with thousands of endpoints changes slice
    by slice."""
    return _of_slice(g, key, port_name, transport)


def _of_slice(g: Graph, key: Key, port_name: str, transport: str) -> Endpoints:
    slice = read(g, key, EndpointSlice)
    kind = EndpointsKind.DNS if slice and slice.address_type == FQDN else EndpointsKind.ADDRESSES
    matching_ports = [p.port for p in slice.ports if p.name == port_name and p.protocol == transport] if slice else []
    ports = {port for port in matching_ports if port and 0 < port < 65536}
    addresses = {address for e in slice.endpoints if e.usable for address in e.addresses[:1]} if slice and ports else set()
    # Envoy accepts only IP addresses here, and so does an API server unless its validation is off.
    usable = [address for address in addresses if _kind_of(address) is kind]
    candidates = (EndpointAddress(address, port) for address in usable for port in ports)
    return Endpoints(
        kind, tuple(sorted(endpoint for endpoint in candidates if kind is not EndpointsKind.DNS or _sound(kind, endpoint)))
    )


def slice_services(key: Key, slice: EndpointSlice) -> list[Key]:
    """Returns the Service and the ServiceImport that the labels of an EndpointSlice name."""
    names = ((kind, slice.metadata.labels.get(label)) for kind, label in SLICE_LABELS.items())
    return [Key(kind, key.namespace, name) for kind, name in names if name]


def missing_endpoints(g: Graph, service_key: Key, port_number: int, transport: str) -> str:
    """Returns why a port of an existing Service has no ready endpoint; empty if it has one, or if it is scaled to zero."""
    service = read(g, service_key, AnyService)
    port = service.port(port_number, transport) if service else None
    if port is None or endpoints(g, service_key, port_number, transport).endpoints:
        return ""
    service_slices = slices(g, service_key)
    if not service_slices:
        return _unlabelled(g, service_key)
    if settings(g).pods and not any(slice.endpoints for slice in service_slices):
        return ""  # scaled to zero
    names = sorted(
        {
            slice_port.name
            for slice in service_slices
            for slice_port in slice.ports
            if slice_port.protocol == transport and slice_port.port
        }
    )
    if port.name not in names:
        existing = f"they have {', '.join(map(repr, names))}" if names else "they have none"
        expected = f"port named {port.name!r}" if port.name else "port without a name, although the Service's port has none"
        return f"its EndpointSlices have no {transport} {expected} ({existing})"
    all_endpoints = [endpoint for slice in service_slices for endpoint in slice.endpoints]
    if not all_endpoints:
        return "its EndpointSlices have no endpoints"
    return (
        f"none of its endpoints ({len(all_endpoints)}) {'can be used' if any(e.usable for e in all_endpoints) else 'is ready'}"
    )


def _unlabelled(g: Graph, service: Key) -> str:
    missing = f"no EndpointSlice in namespace {service.namespace} has the label {SLICE_LABELS[service.kind]}: {service.name}"
    if settings(g).pods:
        return missing  # in a cluster, controllers write them
    orphans = dict(ORPHANED_SLICES.of(g, service.kind, service.namespace))
    guess = typo_of(service.name, orphans)
    return f"{missing}; {orphans[guess]} has the label {guess}, but no such {service.kind} exists" if guess else missing


ORPHANED_SLICES = Index[str, str, tuple[str, Key]]("orphaned-slice")
"""Handwritten EndpointSlices whose Service does not exist, by the Service's kind and namespace: (Service name, slice)."""


@indexer("EndpointSlice")
def index_slices(g: Graph, key: Key) -> Iterator[Entry]:
    slice = read(g, key, EndpointSlice)
    if slice is None:
        return
    services = slice_services(key, slice)
    for service in services:
        yield SLICES.entry((service,), ListedSlice(key, slice.address_type == FQDN))
    if settings(g).pods:
        return
    # Handwritten slices can be selected by an XBackend, or name a Service that does not exist.
    for name, value in slice.metadata.labels:
        yield LABELLED.entry((key.namespace, name, value), key)
    for service in services:
        if read(g, service, AnyService) is None:
            yield ORPHANED_SLICES.entry((service.kind, service.namespace), (service.name, key))
