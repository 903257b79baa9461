"""What is listed of EndpointSlices only where people write them by hand."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.meta import Key
from lasthop.resolve.missing_endpoints import stray_slice
from lasthop.resolve.settings import settings
from lasthop.resolve.xbackends import labelled_slice
from lasthop.store.graph import Graph
from lasthop.store.sources import Entry
from lasthop.store.stages import indexer


@indexer("EndpointSlice")
def index_written_slices(g: Graph, key: Key) -> Iterator[Entry]:
    """Lists a slice by its labels, and as one of a Service that does not exist. In a cluster neither is of use."""
    if not settings(g).pods:
        yield from labelled_slice(g, key)
        yield from stray_slice(g, key)
