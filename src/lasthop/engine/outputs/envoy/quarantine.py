"""Quarantine: removes parts that Envoy refused unexpectedly, until their content changes.

A refused update would leave the old version in effect, which may be weaker, so the faulty part is removed instead.
"""

from __future__ import annotations

from lasthop.engine.outputs.envoy.resource import SECRET, Part, Resource
from lasthop.engine.resolve.trust.certificates import REFUSED_PAIR
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import NodeId
from lasthop.engine.store.sources import Input

QUARANTINE = Input[str, str, str, str]("quarantine")
"""Envoy's complaint about one part of a resource at one content, by type, part and digest."""


def withhold(g: Graph, part: Part, complaint: str | None) -> None:
    """Removes a part from everything that contains it, or restores it (None). An empty complaint marks one of several
    candidates."""
    g.set(_input(part), complaint)


def is_built(g: Graph, part: Part) -> bool:
    """Returns whether a resource would contain this part with this content, were it not in quarantine."""
    return bool(g.readers_at(_input(part)))


def _input(part: Part) -> NodeId:
    secret = part.type_url == SECRET
    return (REFUSED_PAIR, part.id, part.hash) if secret else (QUARANTINE, part.type_url, part.id, part.hash)


def quarantined(g: Graph, resource: Resource) -> bool:
    """Returns whether a resource with itself as its only part is in quarantine."""
    return part_quarantined(g, resource.type_url, resource.name, resource.version)


def part_quarantined(g: Graph, type_url: str, part: str, digest: str) -> bool:
    return complaint(g, type_url, part, digest) is not None


def complaint(g: Graph, type_url: str, part: str, digest: str) -> str | None:
    """Returns Envoy's error for a part in quarantine; empty while the part is one of several candidates."""
    return QUARANTINE.of(g, type_url, part, digest)
