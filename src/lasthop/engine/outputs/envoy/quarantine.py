"""What Envoy has refused although it should not have: withheld until its content changes.

A refused update leaves the old version in force, which may be a weaker one, so the part at fault is taken away instead.
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
    """Has everything built without a part, or with it again (None). Empty complaint: it is only one of several suspects."""
    g.set(_input(part), complaint)


def is_built(g: Graph, part: Part) -> bool:
    """Returns whether something would have this part at this content, were it not in quarantine."""
    return bool(g.readers_at(_input(part)))


def _input(part: Part) -> NodeId:
    secret = part.type_url == SECRET
    return (REFUSED_PAIR, part.id, part.hash) if secret else (QUARANTINE, part.type_url, part.id, part.hash)


def quarantined(g: Graph, resource: Resource) -> bool:
    """Returns whether a resource that has only itself as a part is withheld."""
    return part_quarantined(g, resource.type_url, resource.name, resource.version)


def part_quarantined(g: Graph, type_url: str, part: str, digest: str) -> bool:
    return complaint(g, type_url, part, digest) is not None


def complaint(g: Graph, type_url: str, part: str, digest: str) -> str | None:
    """Returns what Envoy said of a part that is withheld; empty while the part is only one of several suspects."""
    return QUARANTINE.of(g, type_url, part, digest)
