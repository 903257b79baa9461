"""Indexes EndpointSlices, and explains why a port of a Service or ServiceImport has no endpoint. No status reports that,
because the spec counts it as a valid backend."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.core import AnyService, EndpointSlice
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import typo_of
from lasthop.engine.resolve.backends.backends import FQDN, SLICE_LABELS, SLICES, ListedSlice, endpoints, slice_services, slices
from lasthop.engine.resolve.backends.xbackends import LABELLED
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read


def missing_endpoints(g: Graph, service_key: Key, port_number: int, transport: str) -> str:
    """Returns why a port of an existing Service has no ready endpoint; empty if it has one, or if it is scaled to zero."""
    service = read(g, service_key, AnyService)
    port = service.port(port_number, transport) if service else None
    if port is None or endpoints(g, service_key, port_number, transport).endpoints:
        return ""
    written = slices(g, service_key)
    if not written:
        return _unlabelled(g, service_key)
    if settings(g).pods and not any(slice.endpoints for slice in written):
        return ""  # scaled to zero
    names = sorted({each.name for slice in written for each in slice.ports if each.protocol == transport and each.port})
    if port.name not in names:
        has = f"they have {', '.join(map(repr, names))}" if names else "they have none"
        wanted = f"port named {port.name!r}" if port.name else "port without a name, although the Service's port has none"
        return f"its EndpointSlices have no {transport} {wanted} ({has})"
    known = [endpoint for slice in written for endpoint in slice.endpoints]
    if not known:
        return "its EndpointSlices have no endpoints"
    return f"none of its endpoints ({len(known)}) {'can be used' if any(e.usable for e in known) else 'is ready'}"


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
    found = read(g, key, EndpointSlice)
    if found is None:
        return
    services = slice_services(key, found)
    for service in services:
        yield SLICES.entry((service,), ListedSlice(key, found.address_type == FQDN))
    if settings(g).pods:
        return
    # Handwritten slices can be selected by an XBackend, or name a Service that does not exist.
    for name, value in found.metadata.labels:
        yield LABELLED.entry((key.namespace, name, value), key)
    for service in services:
        if read(g, service, AnyService) is None:
            yield ORPHANED_SLICES.entry((service.kind, service.namespace), (service.name, key))
