"""Explains an XBackend: its endpoints, its TLS, and the Gateways that use it."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.backends import EXTERNAL_HOSTNAME, XBackend
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import context_facts, tls_fact, trust
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.backends.xbackend_conditions import hops
from lasthop.engine.resolve.backends.xbackends import spec_problem
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read


def explain_xbackend(g: Graph, key: Key) -> Fact:
    obj = read(g, key, XBackend)
    assert obj is not None
    facts = [_where(g, key, obj), *_tls(g, key)]
    reached: dict[Hop, set[Key]] = {}
    for hop in hops(g, key):
        # All HTTP protocols count as one hop for readers.
        shown = hop._replace(protocol=Protocol.AUTO) if hop.protocol.http else hop
        reached.setdefault(shown, set()).update(HOPS.of(g, *hop))
    facts += [_from(g, hop, routes) for hop, routes in sorted(reached.items())]
    if not reached:
        facts.append(warning("no accepted route of a Gateway uses it"))
    return Fact(str(key), worst(facts), tuple(facts), key)


def _where(g: Graph, key: Key, obj: XBackend) -> Fact:
    own = spec_problem(g, key)
    if own:
        return bad("refused for all routes: ", why=own)
    if obj.spec.type == EXTERNAL_HOSTNAME:
        return plain(f"the host {obj.spec.external_hostname.hostname}, port {obj.spec.port.number}")
    labels = ", ".join(f"{name}={value}" for name, value in obj.spec.endpoint_selector.match_labels)
    what = "Pods" if settings(g).pods else "the endpoints of EndpointSlices"
    return plain(f"{what} with {labels}, port {obj.spec.port.number}")


def _tls(g: Graph, key: Key) -> Iterator[Fact]:
    judged = judgement(g, key)
    if judged is None:
        yield plain("uses no TLS (tls.mode None)")
    elif judged.problem:
        yield bad("its TLS settings cannot be used, so it is refused: ", *trust(g, (judgement, key)), why=judged.problem)
    else:
        yield good("its TLS settings are valid", *trust(g, (judgement, key)), *(warning(text) for text in judged.warnings))


def _from(g: Graph, hop: Hop, routes: set[Key]) -> Fact:
    tls, more = tls_fact(g, hop), context_facts(g, hop)
    said = f"from {hop.gateway} by {', '.join(map(str, sorted(routes)))}: {tls.text}"
    return Fact(said, worst((tls, *more)), (*tls.because, *more), missing=tls.missing)
