"""ReferenceGrants: who may refer into another namespace."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.gateway import ReferenceGrant
from lasthop.api.meta import Key
from lasthop.store.graph import Emitter, Graph, tuple_query
from lasthop.store.store import read

ANY = ""


@tuple_query
def _emit(g: Graph, key: Key) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
    grant = read(g, key, ReferenceGrant)
    if grant is None:
        return
    buckets: dict[tuple[str, ...], set[str]] = {}
    for source in grant.spec.from_:
        for target in grant.spec.to:
            bucket: tuple[str, ...] = (
                "grant",
                key.namespace,
                source.group,
                source.kind,
                source.namespace,
                target.group,
                target.kind,
            )
            buckets.setdefault(bucket, set()).add(target.name or ANY)
    for bucket, names in buckets.items():
        yield bucket, frozenset(names)


GRANTS = Emitter("grants", "ReferenceGrant", _emit)


def permitted(g: Graph, group: str, source: Key, target_group: str, target: Key) -> bool:
    """Whether an object may refer to `target`: always in its own namespace, elsewhere by a grant of that namespace."""
    if source.namespace == target.namespace:
        return True
    bucket = g.bucket("grant", target.namespace, group, source.kind, source.namespace, target_group, target.kind)
    return any(ANY in names or target.name in names for _, names in bucket)
