"""EndpointSlices, by all that they are looked up by. One indexer for everything: there are as many of them as of Services."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.core import AnyService, EndpointSlice
from lasthop.base.api.meta import Key
from lasthop.engine.resolve.backends.backends import FQDN, SLICES, ListedSlice, slice_services
from lasthop.engine.resolve.backends.missing_endpoints import STRAY_SLICES
from lasthop.engine.resolve.backends.xbackends import LABELLED
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read


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
    # Where people write them by hand, an XBackend selects them by their labels, and some are of a Service that is not there.
    for name, value in found.metadata.labels:
        yield LABELLED.entry((key.namespace, name, value), key)
    for service in services:
        if read(g, service, AnyService) is None:
            yield STRAY_SLICES.entry((service.kind, service.namespace), (service.name, key))
