"""ReferenceGrants: permitted references to objects in other namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lasthop.base.api.gateway import ReferenceGrant
from lasthop.base.api.meta import Key
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

ANY = ""


class Reference(NamedTuple):
    """A reference from objects of one kind and namespace to those of another."""

    to_namespace: str
    from_group: str
    from_kind: str
    from_namespace: str
    to_group: str
    to_kind: str


GRANTS = Index[str, str, str, str, str, str, frozenset[str]]("grant")
"""The names that each ReferenceGrant permits (`ANY` for all), by `Reference`."""


def references(key: Key, grant: ReferenceGrant) -> Iterator[tuple[Reference, str]]:
    """Yields the references that a grant permits, each with a name or `ANY`."""
    for source in grant.spec.from_:
        for target in grant.spec.to:
            reference = Reference(key.namespace, source.group, source.kind, source.namespace, target.group, target.kind)
            yield reference, target.name or ANY


@indexer("ReferenceGrant")
def index_grants(g: Graph, key: Key) -> Iterator[Entry]:
    grant = read(g, key, ReferenceGrant)
    names: dict[Reference, set[str]] = {}
    for reference, name in references(key, grant) if grant else ():
        names.setdefault(reference, set()).add(name)
    for reference, permitted_names in names.items():
        yield GRANTS.entry(reference, frozenset(permitted_names))


def permitted(g: Graph, group: str, source: Key, target_group: str, target: Key) -> bool:
    """Returns whether an object may refer to `target`: always in its own namespace, otherwise by a ReferenceGrant there."""
    if source.namespace == target.namespace:
        return True
    granted = GRANTS.of(g, target.namespace, group, source.kind, source.namespace, target_group, target.kind)
    return any(ANY in names or target.name in names for names in granted)
