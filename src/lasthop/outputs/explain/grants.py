"""A ReferenceGrant in words: who may refer to what, and who does."""

from __future__ import annotations

from lasthop.api.gateway import ReferenceGrant
from lasthop.api.meta import Key
from lasthop.outputs.explain.fact import Fact, plain
from lasthop.outputs.explain.reads import STATUS_OF, above
from lasthop.resolve.grants import ANY, GRANTS, references
from lasthop.store.graph import Graph
from lasthop.store.store import read


def explain_grant(g: Graph, key: Key) -> Fact:
    obj = read(g, key, ReferenceGrant)
    facts = []
    for reference, name in references(key, obj) if obj else ():
        what = f"every {reference.to_kind}" if name == ANY else f"{reference.to_kind} {name}"
        said = f"lets {reference.from_kind}s of namespace {reference.from_namespace} refer to {what} in {key.namespace}"
        GRANTS.of(g, *reference)
        asked = sorted({args[0] for query, *args in above(g, (GRANTS, *reference)) if query in STATUS_OF.values()})
        because = [plain(f"{each} asked for that", object=each) for each in asked] or [plain("nobody asks for that")]
        facts.append(plain(said, *because))
    return Fact(str(key), because=tuple(facts), object=key)
