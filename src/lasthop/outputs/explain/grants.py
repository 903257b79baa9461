"""A ReferenceGrant in words: who may refer to what, and who does."""

from __future__ import annotations

from lasthop.api.gateway import ReferenceGrant
from lasthop.api.meta import Key
from lasthop.outputs.explain.fact import Fact, plain
from lasthop.outputs.explain.reads import STATUS_OF, above
from lasthop.store.graph import Graph
from lasthop.store.store import read


def explain_grant(g: Graph, key: Key) -> Fact:
    obj = read(g, key, ReferenceGrant)
    facts = []
    for source in obj.spec.from_ if obj else ():
        for target in obj.spec.to if obj else ():
            what = f"{target.kind} {target.name}" if target.name else f"every {target.kind}"
            said = f"lets {source.kind}s of namespace {source.namespace} refer to {what} in {key.namespace}"
            index = ("grant", key.namespace, source.group, source.kind, source.namespace, target.group, target.kind)
            g.bucket(*index)
            asked = sorted({args[0] for query, *args in above(g, ("bucket", *index)) if query in STATUS_OF.values()})
            because = [plain(f"{each} asked for that", object=each) for each in asked] or [plain("nobody asks for that")]
            facts.append(plain(said, *because))
    return Fact(str(key), because=tuple(facts), object=key)
